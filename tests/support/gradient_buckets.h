// Buckets for communication hooks without a Reducer, which needs CUDA's own timers for tensors on CUDA.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include <ddprun/comm/gradient_bucket.h>

namespace ddp::test {

/// What `hook` makes of one bucket, see run_hook(). Not waited for.
TensorFuture start_hook(const CommHook& hook, const at::Tensor& buffer, const std::vector<at::Tensor>& parameters);

/// Runs `hook` on one bucket that holds `gradients` of `parameters` flattened in `buffer`, as the last of its step, and
/// waits for the result as c10d::Reducer does.
void run_hook(const CommHook& hook, const at::Tensor& buffer, const std::vector<at::Tensor>& parameters);

}  // namespace ddp::test

// The sum of sparse tensors over ranks, by all-gathers of their indices and values.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

namespace ddp::detail {

/// The sum of `tensor`, a sparse COO tensor of the CPU, over the ranks in their order; all of them call this without
/// gradients. `gathered` returns a dense tensor of each rank, one row per rank.
at::Tensor sum_of_sparse(const at::Tensor& tensor, const std::function<at::Tensor(at::Tensor)>& gathered);

}  // namespace ddp::detail

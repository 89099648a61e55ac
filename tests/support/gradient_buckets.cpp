#include "tests/support/gradient_buckets.h"

#include <torch/csrc/distributed/c10d/comm.hpp>

namespace ddp::test {

TensorFuture start_hook(const CommHook& hook, const at::Tensor& buffer, const std::vector<at::Tensor>& parameters) {
  std::vector<size_t> offsets;
  std::vector<size_t> lengths;
  std::vector<c10::IntArrayRef> sizes;
  size_t offset = 0;
  for (const at::Tensor& parameter : parameters) {
    offsets.push_back(offset);
    lengths.push_back(static_cast<size_t>(parameter.numel()));
    sizes.push_back(parameter.sizes());
    offset += lengths.back();
  }
  c10d::GradBucket bucket(0, 1, buffer, offsets, lengths, sizes, parameters, std::nullopt);
  GradientBucket view(bucket, parameters);
  return hook(view);
}

void run_hook(const CommHook& hook, const at::Tensor& buffer, const std::vector<at::Tensor>& parameters) {
  start_hook(hook, buffer, parameters)->waitAndThrow();
}

}  // namespace ddp::test

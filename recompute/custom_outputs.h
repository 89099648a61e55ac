// Outputs that custom functions (torch::autograd::Function) save. While such a function saves its tensors it holds them
// itself, and its outputs hold its node: a second run that ends there, by an exception, leaves a cycle that nothing
// frees.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <vector>

namespace ddp::recompute {

/// The saved outputs of one second run, which begins, in this thread, when this is made.
class CustomOutputs {
 public:
  CustomOutputs();
  /// Autograd saves `tensor`, with the graph that it has. Outputs of a function that ran before, such as the region's
  /// input, are the program's.
  void note(const at::Tensor& tensor);
  /// After an exception: ends the cycles of those that are still there.
  void release() noexcept;

 private:
  const uint64_t thread_;
  const uint64_t first_node_;
  std::vector<c10::weak_intrusive_ptr<c10::TensorImpl>> outputs_;
};

}  // namespace ddp::recompute

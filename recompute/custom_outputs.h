// Outputs that custom functions (torch::autograd::Function) save. While such a function saves its tensors it holds them
// itself, and its outputs hold its node: a second run that ends there, by an exception, leaves a cycle that nothing
// frees.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <vector>

namespace ddp::recompute {

/// The saved outputs of one second run.
class CustomOutputs {
 public:
  /// Autograd saves `tensor`, with the graph that it has.
  void note(const at::Tensor& tensor);
  /// After an exception: ends the cycles of those that are still there.
  void release() noexcept;

 private:
  std::vector<c10::weak_intrusive_ptr<c10::TensorImpl>> outputs_;
};

}  // namespace ddp::recompute

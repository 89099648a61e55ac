// Handles outputs that custom functions (torch::autograd::Function) save. While such a function saves its tensors, it
// holds its outputs, and they hold its node. If an exception ends the second run at this point, a reference cycle
// remains that nothing frees.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <vector>

namespace ddp::recompute {

/// The saved outputs of one second run. The constructor marks the beginning of the run in the calling thread.
class CustomOutputs {
 public:
  CustomOutputs();
  /// Called when autograd saves `tensor`, which still has its graph. Outputs of functions that ran before this second
  /// run, such as the region's input, belong to the program and are ignored.
  void note(const at::Tensor& tensor);
  /// Called after an exception: breaks the cycles of the outputs that still exist.
  void release() noexcept;

 private:
  const uint64_t thread_;
  const uint64_t first_node_;
  std::vector<c10::weak_intrusive_ptr<c10::TensorImpl>> outputs_;
};

}  // namespace ddp::recompute

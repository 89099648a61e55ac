// Memory of batches that are gone, for the ones that follow: pages that were used before need not be mapped and zeroed
// by the system again.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

namespace ddp::detail {

/// Keeps at most as many blocks as there were batches at a time. Safe from several threads; tensors may outlive it.
class BatchMemory {
 public:
  BatchMemory();

  /// An uninitialized tensor on the CPU. Small ones are not worth keeping.
  at::Tensor empty(at::IntArrayRef sizes, at::ScalarType dtype) const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace ddp::detail

// Memory of freed batches, which later batches use again: the system need not map and zero these pages again.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

namespace ddp::detail {

/// Keeps at most as many blocks as there were batches at one time. Thread-safe; tensors may outlive it.
class BatchMemory {
 public:
  BatchMemory();

  /// Returns an uninitialized tensor on the CPU. Small tensors do not use this memory.
  at::Tensor empty(at::IntArrayRef sizes, at::ScalarType dtype) const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace ddp::detail

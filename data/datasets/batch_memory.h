// Keeps the memory of freed batches for later batches, so that the kernel does not have to map and zero these pages
// again.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

namespace ddp::detail {

/// Keeps at most as many blocks as there were batches at the same time. Thread-safe. Tensors may outlive this object.
class BatchMemory {
 public:
  BatchMemory();

  /// Returns an uninitialized CPU tensor. Small tensors are allocated normally.
  at::Tensor empty(at::IntArrayRef sizes, at::ScalarType dtype) const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace ddp::detail

// Small parameters of one shape that are updated as one tensor: an operator on a small matrix costs more than its
// arithmetic. Operators that treat matrices one by one have the same bits on a stack of them.
#pragma once

#include <functional>
#include <vector>

#include "optim/own_optimizer.h"

namespace ddp::optim {

/// Parameters of a batch whose update is computed as one tensor, with a first dimension for the parameters.
struct Stack {
  FusedBatch& batch;
  std::vector<size_t> members;

  /// Of the batch's `tensors` those of the members: a view where there is one, otherwise a copy. Undefined where they
  /// are.
  at::Tensor of(const std::vector<at::Tensor>& tensors) const;
  /// Writes what of() returned for a field of the state back.
  void store(const at::Tensor& stack, size_t field) const;
  /// The 2-norm of each member's part, one tensor of a number for each.
  at::Tensor norms(const at::Tensor& stack) const;
};

/// Calls `update` for all parameters of `batch` with elements: for small ones on the CPU of one shape, dtype and value
/// of the field `step` at once, for others one by one.
void for_each_stack(FusedBatch& batch, size_t step, const std::function<void(const Stack&)>& update);

}  // namespace ddp::optim

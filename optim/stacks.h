// Updates small parameters of one shape as one stacked tensor, because an operator call on a small matrix costs more
// than its arithmetic. Operators that process matrices one by one give the same bits on a stack.
#pragma once

#include <functional>
#include <vector>

#include "optim/own_optimizer.h"

namespace ddp::optim {

/// Parameters of a batch that are updated as one tensor. Its first dimension is the index of the parameter.
struct Stack {
  FusedBatch& batch;
  std::vector<size_t> members;

  /// Stacks the members' entries of `tensors`, a list with one tensor per parameter of the batch. The result is a view
  /// if there is one member, otherwise a copy. It is undefined if the entries are undefined.
  at::Tensor of(const std::vector<at::Tensor>& tensors) const;
  /// Writes the result of of() for a field of the state back.
  void store(const at::Tensor& stack, size_t field) const;
  /// Returns the 2-norm of each member's part as a tensor with one number per member.
  at::Tensor norms(const at::Tensor& stack) const;
};

/// Calls `update` for all nonempty parameters of `batch`: once for all small CPU parameters that have the same shape,
/// dtype and value of the field `step`, and one by one for the others.
void for_each_stack(FusedBatch& batch, size_t step, const std::function<void(const Stack&)>& update);

}  // namespace ddp::optim

// What training loops do with a metric: the ranks' mean or sum of a number.
#pragma once

#include <ATen/core/Tensor.h>

#include <ddprun/comm/process_group.h>

namespace ddp {

/// In place: replaces `value` on every rank by the mean over all ranks (`average`) or their sum, and returns it.
/// reduce_tensor() leaves it alone. `value` has any shape and, for the mean, a floating-point dtype. Records no
/// gradient. Every rank of the group must call it; throws as all_reduce() does.
at::Tensor reduce_value(at::Tensor value, const GroupHandle& group, bool average = true);

/// A copy: returns the mean over all ranks (`average`) or their sum as a new tensor, and leaves `value` alone.
/// reduce_value() changes it. `value` need not be contiguous; all else as there.
at::Tensor reduce_tensor(const at::Tensor& value, const GroupHandle& group, bool average = true);

}  // namespace ddp

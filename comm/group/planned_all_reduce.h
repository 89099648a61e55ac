// Internal: all-reduces of the library, for gradient buckets and for calls of the program: what is asked of
// comm/core/all_reduce_plan.h, and what its plans do.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "comm/core/all_reduce_plan.h"
#include "comm/group/group_state.h"

namespace ddp::detail {

/// What the plan depends on beside the tensor.
struct AllReduceCall {
  AllReduceWaiter waiter = AllReduceWaiter::kHandle;
  bool is_average = false;
  bool has_own_timeout = false;  ///< another one than the group's
};

/// The plan by which `tensor` is reduced over `group`. All ranks get the same plan, or plans that are compatible.
AllReducePlan plan_all_reduce(const GroupState& group, const at::Tensor& tensor, const AllReduceCall& call);

/// Starts an all-reduce of one tensor by a plan other than kInCall; `c10d_group` is the group's. kInWait is for sums
/// without options.
c10::intrusive_ptr<c10d::Work> start_all_reduce(AllReducePlan plan, const GroupState& group,
                                                c10d::ProcessGroup& c10d_group, std::vector<at::Tensor>& tensors,
                                                const c10d::AllreduceOptions& options = {});

}  // namespace ddp::detail

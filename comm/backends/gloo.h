// Internal: LibTorch's gloo, through the host's memory.
#pragma once

#include "comm/backends/group_plan.h"

namespace ddp::detail {

/// The dtypes that gloo's collectives take (c10d's "Invalid scalar type" else); for backends on top of it as well.
std::vector<std::string> gloo_dtypes();

/// A gloo backend for the group's ranks, which all call it. Throws when they have not all come within the timeout.
c10::intrusive_ptr<c10d::Backend> make_gloo(const GroupPlan& plan, const c10::intrusive_ptr<c10d::Store>& store);

/// For those that number their collectives: begins to count, and with TORCH_DISTRIBUTED_DEBUG=DETAIL all ranks compare
/// what they are about to do before each collective, over a gloo group of its own with torch.distributed's keys; a
/// mismatch is an error that names both collectives. All ranks call it.
c10::intrusive_ptr<c10d::Backend> with_checks(c10::intrusive_ptr<c10d::Backend> backend, const GroupPlan& plan,
                                              const c10::intrusive_ptr<c10d::Store>& store);

}  // namespace ddp::detail

// Internal: the backend of ranks that share memory where they can.
#pragma once

#include <string>

#include "comm/backends/group_plan.h"

namespace ddp::detail {

/// What serves the ranks of `plan`, which all call it: shared memory where they are on one host, shared memory on each
/// host and gloo between hosts where some hosts have several ranks, else gloo. `host` is the caller's, see
/// host_identity(). Throws when not all ranks arrive within the plan's timeout.
c10::intrusive_ptr<c10d::Backend> make_shm(const GroupPlan& plan, const c10::intrusive_ptr<c10d::Store>& store,
                                           const std::string& host);

}  // namespace ddp::detail

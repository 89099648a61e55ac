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

/// The backend of the ranks, without the checks of TORCH_DISTRIBUTED_DEBUG=DETAIL, and the reason why it is gloo only;
/// the reason is "" if some ranks share memory.
struct ShmConnection {
  c10::intrusive_ptr<c10d::Backend> backend;
  std::string why_gloo{};
  bool was_expected = false;  ///< each rank has a host of its own, or one of them does not run this backend
};

/// As make_shm(), for a caller that adds the checks itself.
ShmConnection connect_shm(const GroupPlan& plan, const c10::intrusive_ptr<c10d::Store>& store, const std::string& host);

/// Prints on standard error that the ranks use gloo.
void report_gloo(const std::string& why);

}  // namespace ddp::detail

// Internal: what all groups of one rank share of the job's store.
#pragma once

#include <memory>

#include "comm/backends/c10d_compat.h"
#include "comm/group/bounded_store.h"

namespace ddp::detail {

class DesyncDebugger;

/// Made for the job's group, shared by its sub-groups; empty for a single process.
struct JobLinks {
  c10::intrusive_ptr<c10d::Store> store{};     ///< our own keys of the job's group
  c10::intrusive_ptr<BoundedStore> bounded{};  ///< under `store`; null where ranks are threads
  std::shared_ptr<DesyncDebugger> desync_debugger{};
};

}  // namespace ddp::detail

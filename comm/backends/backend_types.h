// Internal: the backends that this process knows by name, and all that the library knows of each. Each is in a file
// of its own beside this one.
#pragma once

#include <functional>

#include <ddprun/base/rank_info.h>

#include "comm/backends/c10d_compat.h"
#include "comm/backends/group_plan.h"
#include "comm/core/backend_map.h"

namespace ddp::detail {

struct BackendType {
  BackendTraits traits{};
  /// What c10d calls it; its own kinds have numbers of their own.
  c10d::ProcessGroup::BackendType c10d_type = c10d::ProcessGroup::CUSTOM;
  /// Connects this rank with the group's others, which all call it; blocks until all have called it, or throws by the
  /// plan's timeout. The backend keeps its keys in `store`.
  std::function<c10::intrusive_ptr<c10d::Backend>(const GroupPlan& plan, const c10::intrusive_ptr<c10d::Store>& store)>
      make{};
  /// make() may connect the ranks by another known backend, whose name getBackendName() then says.
  bool may_choose_another = false;
  /// Throws where this process cannot use it, before any rank waits for another. Empty: every process can.
  std::function<void(const RankInfo& info)> check{};
};

/// All of them, in the order in which messages list them.
BackendList known_backends();

/// The type that has these traits, one of known_backends().
const BackendType& type_of(const BackendTraits& traits);

/// Makes one more known to the process, for good, as torch.distributed.Backend.register_backend() does; before the
/// first group that names it, on all ranks. Throws std::invalid_argument for a name that is taken or that
/// ProcessGroupOptions::backend cannot say, and for a type that serves no device or cannot be made.
void register_backend(BackendType type);

/// Runs each backend's own check, see BackendType.
void check_backends(const BackendMap& backends, const RankInfo& info);

}  // namespace ddp::detail

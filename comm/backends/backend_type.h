// Internal: a kind of backend, all that the library knows of it. Each stands in a file of its own beside this one.
#pragma once

#include <functional>

#include <ddprun/base/rank_info.h>

#include "comm/backends/c10d_compat.h"
#include "comm/backends/group_plan.h"
#include "comm/core/backend_traits.h"

namespace ddp::detail {

struct BackendType {
  BackendTraits traits{};
  /// What c10d calls it; its own kinds have numbers of their own.
  c10d::ProcessGroup::BackendType c10d_type = c10d::ProcessGroup::CUSTOM;
  /// Connects this rank with the group's others, which all call it; blocks until all have come, or throws by the plan's
  /// timeout. The backend keeps its keys in `store`.
  std::function<c10::intrusive_ptr<c10d::Backend>(const GroupPlan& plan, const c10::intrusive_ptr<c10d::Store>& store)>
      make{};
  /// make() may connect the ranks by another known backend, whose name getBackendName() then says.
  bool may_choose_another = false;
  /// Throws where this process cannot use it, before any rank waits for another. Empty: every process can.
  std::function<void(const RankInfo& info)> check{};
};

}  // namespace ddp::detail

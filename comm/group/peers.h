// Internal: what all groups of one rank share of the job's store, and how the ranks of a job leave it.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <ddprun/base/rank_info.h>

#include "comm/backends/c10d_compat.h"
#include "comm/group/bounded_store.h"

namespace ddp::detail {

class DesyncDebugger;

/// Made for the job's group, shared by its sub-groups; empty for a single process.
struct JobServices {
  c10::intrusive_ptr<c10d::Store> store{};     ///< our own keys of the job's group
  c10::intrusive_ptr<BoundedStore> bounded{};  ///< under `store`; null where ranks are threads
  std::shared_ptr<DesyncDebugger> desync_debugger{};
};

/// From now on no call to the store may take long: something has failed, or this rank leaves.
void limit_store_calls(const JobServices& job);

/// A key that a rank sets, see store_keys.h.
using RankKey = std::string (*)(int rank);

/// Until every other rank of the group has set one of these keys in `store`, or `limit` expires, or the store does not
/// answer. Ranks that are not ddprun programs (Python) do not announce themselves and are not awaited. Never throws.
void wait_for_ranks(const RankInfo& info, const JobServices& job, c10d::Store& store,
                    const std::vector<RankKey>& rank_keys, std::chrono::milliseconds limit) noexcept;

/// Before the host of the store leaves because of a failure: the others learn from it why. Never throws.
void wait_until_failure_is_known(const RankInfo& info, const JobServices& job) noexcept;

}  // namespace ddp::detail

// Internal: how the ranks of a job take leave of each other.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include <ddprun/base/rank_info.h>

#include "comm/group/job_links.h"

namespace ddp::detail {

/// From now on no call to the store may take long: something has failed, or this rank leaves.
void hurry(const JobLinks& job);

/// A key that a rank sets, see store_keys.h.
using Mark = std::string (*)(int rank);

/// Until every other rank of the group has one of the marks in `store`, or `limit` is over, or the store does not
/// answer. Ranks that are no ddprun programs (Python) do not announce themselves and are not awaited. Never throws.
void await_others(const RankInfo& info, const JobLinks& job, c10d::Store& store, const std::vector<Mark>& marks,
                  std::chrono::milliseconds limit) noexcept;

/// Before the host of the store leaves because of a failure: the others learn from it why. Never throws.
void await_learners(const RankInfo& info, const JobLinks& job) noexcept;

}  // namespace ddp::detail

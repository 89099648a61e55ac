// Internal: after a failed collective, or when the ranks could not connect, finds out with the other ranks who is the
// cause.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "comm/group/group_state.h"

namespace ddp::detail {

/// The end of the error message of collective `number`, which failed here, such as "; did not take part in it: rank 2
/// (no answer: …)", what is known of the store, or "". The first rank to fail asks all others, the others adopt what it
/// has found (culprit_ranks.h). Ranks that run Python are not named. Takes 2 seconds at the longest, whatever the store
/// does. Never throws.
std::string failure_cause(GroupState& state, uint64_t number);

/// The same for a comparison for which a rank did not come: that one may wait for a third. Only ranks that are gone are
/// named.
std::string comparison_failure_cause(GroupState& state);

/// The ranks of a group that is being connected.
struct ConnectingGroup {
  const RankInfo& info;
  c10::intrusive_ptr<c10d::Store> store;  ///< our own keys of the group
  JobServices job;
  std::string path{};          ///< as GroupState::Parts
  std::vector<int> members{};  ///< the group's ranks in the job
  /// Whether a rank that does not announce itself may be there: one that runs Python.
  std::function<bool(int rank)> may_be_there{};
};

/// The same for connecting: "; never arrived: rank 1, 3" as well.
std::string connect_failure_cause(const ConnectingGroup& group);

/// Who hosts the job's store, for messages: "rank 0" or "the launcher".
std::string store_host(const RankInfo& info);

/// "; …" for a message: the store cannot be asked because of `problem`. Says who hosts it.
std::string about_store(const RankInfo& info, const std::string& problem);

}  // namespace ddp::detail

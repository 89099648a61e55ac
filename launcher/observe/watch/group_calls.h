// The collectives of several ranks side by side, by the group that they are of. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/observe/watch/watched_rank.h"

namespace launcher {

struct RankCalls {
  const RankView* rank = nullptr;
  std::vector<const ddp::detail::CollectiveRecord*> calls{};  // by number
  std::int64_t last_begun = -1;                               // number; -1: none
  int rank_in_group = -1;                                     // -1: it has not reported its number
  // Those with single ranks, oldest first.
  std::vector<const ddp::detail::CollectiveRecord*> messages{};

  const ddp::detail::CollectiveRecord* call(std::uint64_t number) const;
  const ddp::detail::CollectiveRecord* first_open() const;
  const ddp::detail::CollectiveRecord* open_message() const;
};

struct GroupCalls {
  ddp::detail::GroupRecord group{};
  std::vector<RankCalls> members{};  // those that are seen
};

// All groups that a rank has reported. All ranks belong to the job's group, even if they have not reported it.
std::vector<GroupCalls> group_calls(const std::vector<RankView>& ranks);

// The earliest number in a group at which ranks have called different things.
struct Mismatch {
  const GroupCalls* group = nullptr;
  std::uint64_t number = 0;
};
std::optional<Mismatch> first_mismatch(const std::vector<GroupCalls>& groups);

// A call, and the ranks that have made it at one number; those with fewest ranks first.
using RanksOfCall = std::pair<std::string, std::vector<int>>;
std::vector<RanksOfCall> ranks_by_call(const Mismatch& mismatch);
std::string mismatch_text(const Mismatch& mismatch);
// Where the ranks' last collectives differ, for a report on a job that has failed: "" when they do not.
std::string divergence(const std::vector<RankView>& ranks);

// `waiter` is in a collective that `missing` has not entered, or in a message that it does not answer.
struct WaitEdge {
  const RankView* waiter = nullptr;
  const RankView* missing = nullptr;
  const GroupCalls* group = nullptr;
  const ddp::detail::CollectiveRecord* call = nullptr;
};
// Of running ranks, in every group.
std::vector<WaitEdge> wait_edges(const std::vector<GroupCalls>& groups);

}  // namespace launcher

// The collectives of several ranks side by side, for each group. Pure.
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
  std::int64_t last_begun = -1;  // the number of the last call that has begun; -1: before the first call
  int rank_in_group = -1;        // -1: it has not reported its number
  // Calls with single ranks (send, receive), oldest first.
  std::vector<const ddp::detail::CollectiveRecord*> messages{};

  const ddp::detail::CollectiveRecord* call(std::uint64_t number) const;
  const ddp::detail::CollectiveRecord* first_open() const;
  const ddp::detail::CollectiveRecord* open_message() const;
};

struct GroupCalls {
  ddp::detail::GroupRecord group{};
  std::vector<RankCalls> members{};  // the members whose calls are known
};

// All groups that a rank has reported. All ranks belong to the job's group, even if they have not reported it.
std::vector<GroupCalls> group_calls(const std::vector<RankView>& ranks);

// The lowest number in a group at which ranks have called different collectives.
struct Mismatch {
  const GroupCalls* group = nullptr;
  std::uint64_t number = 0;
};
std::optional<Mismatch> first_mismatch(const std::vector<GroupCalls>& groups);

// A call, and the ranks that have made it at one number. The call with the fewest ranks comes first.
using RanksOfCall = std::pair<std::string, std::vector<int>>;
std::vector<RanksOfCall> ranks_by_call(const Mismatch& mismatch);
std::string mismatch_text(const Mismatch& mismatch);
// Where the last collectives of the ranks differ, for the report on a failed job; "" when they do not differ.
std::string divergence(const std::vector<RankView>& ranks);

// `waiter` is in a collective that `missing` has not entered, or in a message that `missing` does not answer.
struct WaitEdge {
  const RankView* waiter = nullptr;
  const RankView* missing = nullptr;
  const GroupCalls* group = nullptr;
  const ddp::detail::CollectiveRecord* call = nullptr;
};
// The waits of running ranks in all groups.
std::vector<WaitEdge> wait_edges(const std::vector<GroupCalls>& groups);

}  // namespace launcher

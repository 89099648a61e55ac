#include "launcher/observe/watch/group_calls.h"

#include <algorithm>
#include <set>

#include "launcher/observe/watch/collective_text.h"

namespace launcher {
namespace {

using ddp::detail::CollectiveRecord;
using ddp::detail::GroupRecord;

// Returns the index of the group in the rank's page. If there are several, it is the last one, because a job may be
// formed again under the same name.
std::optional<std::uint32_t> index_of(const RankView& rank, const GroupRecord& group) {
  if (!rank.progress) return std::nullopt;
  const auto& groups = rank.progress->groups;
  for (std::size_t i = groups.size(); i > 0; --i) {
    if (groups[i - 1].is_same(group)) return static_cast<std::uint32_t>(i - 1);
  }
  return std::nullopt;
}

bool is_jobs_group(const GroupRecord& group) {
  return group.path.empty() || group.path == ddp::detail::kPythonGroups;
}

bool is_in_jobs_group(const ddp::detail::ProgressSnapshot& progress) {
  return std::any_of(progress.groups.begin(), progress.groups.end(), is_jobs_group);
}

RankCalls calls_of(const RankView& rank, std::optional<std::uint32_t> group) {
  RankCalls calls{.rank = &rank};
  if (!group) return calls;
  calls.rank_in_group = rank.progress->groups[*group].rank;
  for (const CollectiveRecord& call : rank.progress->collectives) {
    if (call.group != *group) continue;
    (call.is_message ? calls.messages : calls.calls).push_back(&call);
  }
  std::sort(calls.calls.begin(), calls.calls.end(), [](const auto* a, const auto* b) { return a->number < b->number; });
  if (!calls.calls.empty()) calls.last_begun = static_cast<std::int64_t>(calls.calls.back()->number);
  return calls;
}

GroupCalls calls_in(const GroupRecord& group, const std::vector<RankView>& ranks) {
  GroupCalls result{.group = group};
  const bool is_jobs = is_jobs_group(group);
  for (const RankView& rank : ranks) {
    const auto index = index_of(rank, group);
    // A rank without a page is left out, because its calls are not known. So is a rank in Python for a group of ranks
    // in C++, and the reverse.
    const bool is_silent = rank.progress && !is_in_jobs_group(*rank.progress);
    if (index || (is_jobs && (is_silent || !rank.runs()))) result.members.push_back(calls_of(rank, index));
  }
  return result;
}

bool differ_at(const GroupCalls& group, std::uint64_t number) {
  const CollectiveRecord* first = nullptr;
  for (const RankCalls& member : group.members) {
    const CollectiveRecord* call = member.call(number);
    if (call == nullptr) continue;
    if (first == nullptr) first = call;
    if (!call->is_same_call_as(*first)) return true;
  }
  return false;
}

bool answers(const RankCalls& other, const MessageParts& message, int rank_in_group) {
  return std::any_of(other.messages.begin(), other.messages.end(), [&](const CollectiveRecord* call) {
    const auto answer = call->is_open() ? message_of(*call) : std::nullopt;
    return answer && answer->fits(message) && (answer->peer == rank_in_group || answer->peer < 0);
  });
}

// A rank that receives from any source waits for all other ranks.
void add_message_waits(const GroupCalls& group, const RankCalls& member, std::vector<WaitEdge>& waits) {
  const CollectiveRecord* call = member.open_message();
  if (call == nullptr) return;
  const MessageParts message = *message_of(*call);
  for (const RankCalls& other : group.members) {
    const bool is_meant = message.peer < 0 ? &other != &member : other.rank_in_group == message.peer;
    if (is_meant && !answers(other, message, member.rank_in_group)) {
      waits.push_back({member.rank, other.rank, &group, call});
    }
  }
}

using ddp::detail::CollectiveRecord;

// If one rank has finished an all-reduce, all ranks have entered it. A rank that was killed may not have recorded that.
void infer_from_other_ranks(GroupCalls& group) {
  std::int64_t done = -1;
  for (const RankCalls& member : group.members) {
    for (const CollectiveRecord* call : member.calls) {
      const bool tells = !call->is_message && !call->is_open() && call->signature.starts_with("all_reduce");
      if (tells) done = std::max(done, static_cast<std::int64_t>(call->number));
    }
  }
  for (RankCalls& member : group.members) member.last_begun = std::max(member.last_begun, done);
}

}  // namespace

const CollectiveRecord* RankCalls::call(std::uint64_t number) const {
  const auto found = std::lower_bound(calls.begin(), calls.end(), number,
                                      [](const CollectiveRecord* each, std::uint64_t n) { return each->number < n; });
  return found != calls.end() && (*found)->number == number ? *found : nullptr;
}

const CollectiveRecord* RankCalls::first_open() const {
  const auto found = std::find_if(calls.begin(), calls.end(), [](const auto* call) { return call->is_open(); });
  return found != calls.end() ? *found : nullptr;
}

// The last message counts, as the caller may have given an earlier one up.
const CollectiveRecord* RankCalls::open_message() const {
  const auto found = std::find_if(messages.rbegin(), messages.rend(), [](const auto* call) { return call->is_open(); });
  return found != messages.rend() ? *found : nullptr;
}

std::vector<GroupCalls> group_calls(const std::vector<RankView>& ranks) {
  std::vector<GroupCalls> result;
  for (const RankView& rank : ranks) {
    if (!rank.progress) continue;
    for (const GroupRecord& group : rank.progress->groups) {
      const bool is_known =
          std::any_of(result.begin(), result.end(), [&](const auto& each) { return each.group.is_same(group); });
      if (!is_known) result.push_back(calls_in(group, ranks));
    }
  }
  return result;
}

std::optional<Mismatch> first_mismatch(const std::vector<GroupCalls>& groups) {
  for (const GroupCalls& group : groups) {
    std::set<std::uint64_t> numbers;
    for (const RankCalls& member : group.members) {
      for (const CollectiveRecord* call : member.calls) numbers.insert(call->number);
    }
    for (const std::uint64_t number : numbers) {
      if (differ_at(group, number)) return Mismatch{&group, number};
    }
  }
  return std::nullopt;
}

std::vector<WaitEdge> wait_edges(const std::vector<GroupCalls>& groups) {
  std::vector<WaitEdge> waits;
  for (const GroupCalls& group : groups) {
    for (const RankCalls& member : group.members) {
      if (!member.rank->runs()) continue;
      const CollectiveRecord* call = member.first_open();
      if (call == nullptr) {
        add_message_waits(group, member, waits);
        continue;
      }
      for (const RankCalls& other : group.members) {
        if (other.last_begun < static_cast<std::int64_t>(call->number)) {
          waits.push_back({member.rank, other.rank, &group, call});
        }
      }
    }
  }
  return waits;
}

std::vector<RanksOfCall> ranks_by_call(const Mismatch& mismatch) {
  std::map<std::pair<std::string, std::uint64_t>, std::vector<int>> ranks_of_call;
  for (const RankCalls& member : mismatch.group->members) {
    const CollectiveRecord* call = member.call(mismatch.number);
    if (call != nullptr) ranks_of_call[{call->signature, call->hash}].push_back(member.rank->rank);
  }
  std::vector<RanksOfCall> by_call;
  for (auto& [call, ranks] : ranks_of_call) by_call.emplace_back(call.first, std::move(ranks));
  std::stable_sort(by_call.begin(), by_call.end(),
                   [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  return by_call;
}

std::string mismatch_text(const Mismatch& mismatch) {
  std::string text = "ranks have called different collectives as number " + std::to_string(mismatch.number);
  const std::string group = name_of(mismatch.group->group);
  if (!group.empty()) text += " of " + group;
  for (const auto& [signature, ranks] : ranks_by_call(mismatch)) text += "; " + rank_ranges(ranks) + ": " + signature;
  return text;
}

std::string divergence(const std::vector<RankView>& ranks) {
  std::vector<GroupCalls> groups = group_calls(ranks);
  for (GroupCalls& group : groups) infer_from_other_ranks(group);
  if (const auto mismatch = first_mismatch(groups)) return mismatch_text(*mismatch);
  for (const GroupCalls& group : groups) {
    const RankCalls* first = nullptr;
    const RankCalls* last = nullptr;
    for (const RankCalls& member : group.members) {
      if (first == nullptr || member.last_begun < first->last_begun) first = &member;
      if (last == nullptr || member.last_begun > last->last_begun) last = &member;
    }
    if (first == nullptr || first->last_begun == last->last_begun) continue;
    const auto number = static_cast<std::uint64_t>(first->last_begun + 1);
    std::vector<int> behind;
    std::vector<int> ahead;
    const CollectiveRecord* call = nullptr;
    for (const RankCalls& member : group.members) {
      const CollectiveRecord* own = member.call(number);
      if (own != nullptr) call = own;
      (member.last_begun < static_cast<std::int64_t>(number) ? behind : ahead).push_back(member.rank->rank);
    }
    if (call == nullptr) continue;
    return rank_ranges(ahead) + " had entered " + collective_text(*call, group.group) + ", and " + rank_ranges(behind) +
           " had not";
  }
  return "";
}

}  // namespace launcher

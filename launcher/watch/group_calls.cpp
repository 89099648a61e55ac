#include "launcher/watch/group_calls.h"

#include <algorithm>
#include <set>

namespace launcher {
namespace {

using ddp::detail::CollectiveRecord;
using ddp::detail::GroupRecord;

// The index of the group in the rank's page: the last one, as a job may be formed again under the same name.
std::optional<std::uint32_t> index_of(const RankView& rank, const GroupRecord& group) {
  if (!rank.progress) return std::nullopt;
  const auto& groups = rank.progress->groups;
  for (std::size_t i = groups.size(); i > 0; --i) {
    if (groups[i - 1].is_same(group)) return static_cast<std::uint32_t>(i - 1);
  }
  return std::nullopt;
}

RankCalls calls_of(const RankView& rank, std::optional<std::uint32_t> group) {
  RankCalls calls{.rank = &rank};
  if (!group) return calls;
  for (const CollectiveRecord& call : rank.progress->collectives) {
    if (call.group == *group) calls.calls.push_back(&call);
  }
  std::sort(calls.calls.begin(), calls.calls.end(), [](const auto* a, const auto* b) { return a->number < b->number; });
  if (!calls.calls.empty()) calls.last_begun = static_cast<std::int64_t>(calls.calls.back()->number);
  return calls;
}

GroupCalls calls_in(const GroupRecord& group, const std::vector<RankView>& ranks) {
  GroupCalls result{.group = group};
  const bool is_jobs = group.path.empty();
  for (const RankView& rank : ranks) {
    const auto index = index_of(rank, group);
    // What a rank that tells nothing has called is not known.
    if (index || (is_jobs && (rank.progress || !rank.runs()))) result.members.push_back(calls_of(rank, index));
  }
  return result;
}

bool differ_at(const GroupCalls& group, std::uint64_t number) {
  const CollectiveRecord* first = nullptr;
  for (const RankCalls& member : group.members) {
    const CollectiveRecord* call = member.call(number);
    if (call == nullptr) continue;
    if (first == nullptr) first = call;
    if (!call->calls_the_same(*first)) return true;
  }
  return false;
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

}  // namespace launcher

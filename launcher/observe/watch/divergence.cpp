// What ranks have called differently, in words.
#include <algorithm>
#include <cstdint>
#include <map>

#include "launcher/observe/watch/collective_text.h"
#include "launcher/observe/watch/group_calls.h"

namespace launcher {
namespace {

using ddp::detail::CollectiveRecord;

// An all-reduce that one rank has done all have entered: who was killed may not have come to writing that down.
void note_what_others_have_seen(GroupCalls& group) {
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

std::vector<Camp> camps_at(const Mismatch& mismatch) {
  std::map<std::pair<std::string, std::uint64_t>, std::vector<int>> ranks_of_call;
  for (const RankCalls& member : mismatch.group->members) {
    const CollectiveRecord* call = member.call(mismatch.number);
    if (call != nullptr) ranks_of_call[{call->signature, call->hash}].push_back(member.rank->rank);
  }
  std::vector<Camp> camps;
  for (auto& [call, ranks] : ranks_of_call) camps.emplace_back(call.first, std::move(ranks));
  std::stable_sort(camps.begin(), camps.end(),
                   [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  return camps;
}

std::string mismatch_text(const Mismatch& mismatch) {
  std::string text = "ranks have called different collectives as number " + std::to_string(mismatch.number);
  const std::string& path = mismatch.group->group.path;
  if (!path.empty()) text += " of " + path.substr(0, path.size() - 1);
  for (const auto& [signature, ranks] : camps_at(mismatch)) text += "; " + rank_ranges(ranks) + ": " + signature;
  return text;
}

std::string divergence(const std::vector<RankView>& ranks) {
  std::vector<GroupCalls> groups = group_calls(ranks);
  for (GroupCalls& group : groups) note_what_others_have_seen(group);
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

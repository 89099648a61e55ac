#include "launcher/observe/watch/verdict.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <set>
#include <utility>

#include "launcher/observe/watch/collective_text.h"
#include "launcher/observe/watch/group_calls.h"
#include "launcher/observe/watch/unseen_ranks.h"
#include "launcher/os/system/clock_text.h"
#include "launcher/os/system/utf8.h"

namespace launcher {
namespace {

using ddp::detail::CollectiveRecord;
using RankPhase = ddp::progress::Phase;

// As many ranks as a sentence describes.
constexpr std::size_t kMaxNamedRanks = 4;

// The time for which durations are printed.
struct Moment {
  std::uint64_t page_clock = 0;
  std::optional<std::chrono::system_clock::time_point> wall_time = std::nullopt;  // set: as clock times

  // "for 121 s", or "since 14:03:12", for a begin by the page clock.
  std::string text_since(std::uint64_t begin) const {
    const std::uint64_t age = page_clock > begin ? page_clock - begin : 0;
    return wall_time ? "since " + clock_text(*wall_time - std::chrono::microseconds(age)) : "for " + duration_text(age);
  }
};

std::string step_text(const RankView& rank) {
  return rank.progress ? " (step " + std::to_string(rank.progress->step) + ")" : "";
}

// "it has been in data for 121 s"
std::string position_text(const RankView& rank, const Moment& now, const char* subject) {
  if (!rank.runs()) return std::string(subject) + " has ended (" + rank.ended + ")";
  const std::string stopped =
      rank.process && rank.process->is_stopped() ? " is " + to_text(*rank.process) + ";" : std::string();
  const std::string begin = stopped.empty() ? subject : std::string(subject) + stopped + " it";
  const std::string line = rank.python ? rank.python->line : "";
  if (!rank.progress) return begin + (line.empty() ? " reports nothing about itself" : " is at " + line);
  const std::string at = line.empty() ? "" : ", at " + line;
  const std::string time = now.text_since(rank.progress->phase_since);
  const RankPhase phase = rank.progress->phase;
  if (phase == RankPhase::kOther) return begin + " has been between phases " + time + at;
  return begin + " has been in " + rank.progress->phase_name + " " + time + at;
}

// The places of all of them, as far as a sentence has room.
std::string positions_text(const std::vector<const RankView*>& ranks, const Moment& now) {
  std::string text;
  for (std::size_t i = 0; i < std::min(ranks.size(), kMaxNamedRanks); ++i) {
    text += (i == 0 ? "" : "; ") + position_text(*ranks[i], now, rank_ranges({ranks[i]->rank}).c_str());
  }
  return ranks.size() > kMaxNamedRanks ? text + "; and others" : text;
}

std::vector<int> ranks_of(const std::vector<const RankView*>& views) {
  std::vector<int> ranks;
  for (const RankView* view : views) ranks.push_back(view->rank);
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

Verdict different_calls(const Mismatch& mismatch) {
  const auto by_call = ranks_by_call(mismatch);
  Verdict verdict{.kind = Verdict::Kind::kDifferentCalls, .sentence = mismatch_text(mismatch)};
  const bool has_minority = by_call.front().second.size() < by_call.back().second.size();
  for (const auto& [signature, ranks] : by_call) {
    if (has_minority && ranks.size() == by_call.back().second.size()) continue;
    verdict.culprits.insert(verdict.culprits.end(), ranks.begin(), ranks.end());
  }
  if (has_minority) verdict.waiter = by_call.back().second.front();
  return verdict;
}

// " not entered all_reduce #4711 of 25.0 MB"; " not answered rank 0's recv from rank 1 of 24 bytes"
std::string what_is_missing(const WaitEdge& wait) {
  const std::string text = collective_text(*wait.call, wait.group->group);
  if (!wait.call->is_message) return " not entered " + text;
  return " not answered " + rank_ranges({wait.waiter->rank}) + "'s " + text;
}

// Returns ", with barrier #0 in group1 under way": a call of the rank in another group than that of `wait`, for which
// it may wait.
std::string other_call_of(const RankView& rank, const WaitEdge& wait) {
  if (!rank.runs() || !rank.progress || rank.progress->collectives.empty()) return "";
  const CollectiveRecord& last = rank.progress->collectives.back();
  const ddp::detail::GroupRecord& group = rank.progress->groups[last.group];
  if (!last.is_open() || group.is_same(wait.group->group)) return "";
  return ", with " + collective_text(last, group) + " under way";
}

// `wait` is one of the waits that `culprits` cause.
Verdict missing(Verdict::Kind kind, const std::vector<const RankView*>& culprits, const std::vector<WaitEdge>& waits,
                const Moment& now) {
  const auto is_culprit = [&](const RankView* rank) {
    return std::find(culprits.begin(), culprits.end(), rank) != culprits.end();
  };
  std::vector<const RankView*> waiting;
  const WaitEdge* first = nullptr;
  for (const WaitEdge& wait : waits) {
    if (is_culprit(wait.waiter)) continue;
    waiting.push_back(wait.waiter);
    if (is_culprit(wait.missing) && (first == nullptr || wait.call->number < first->call->number)) first = &wait;
  }
  Verdict verdict{.kind = kind, .culprits = ranks_of(culprits)};
  const RankView& culprit = *culprits.front();
  const std::string named = rank_ranges(verdict.culprits);
  if (first == nullptr) {
    verdict.sentence = positions_text(culprits, now);
    return verdict;
  }
  verdict.waiter = first->waiter->rank;
  verdict.sentence = named + (culprits.size() == 1 ? " has" : " have") + what_is_missing(*first) + step_text(culprit) +
                     "; " +
                     (culprits.size() == 1 ? position_text(culprit, now, "it") + other_call_of(culprit, *first)
                                           : positions_text(culprits, now)) +
                     "; " + rank_ranges(ranks_of(waiting)) + (ranks_of(waiting).size() == 1 ? " waits" : " wait") +
                     (culprits.size() == 1 ? " for it" : " for them");
  return verdict;
}

// Returns the ranks at the end of each chain of waits: other ranks wait for them, but they wait for no rank.
std::vector<const RankView*> free_ranks(const std::vector<WaitEdge>& waits) {
  std::set<const RankView*> waiting;
  for (const WaitEdge& wait : waits) waiting.insert(wait.waiter);
  std::vector<const RankView*> result;
  for (const WaitEdge& wait : waits) {
    const bool is_new = std::find(result.begin(), result.end(), wait.missing) == result.end();
    if (is_new && !waiting.contains(wait.missing)) result.push_back(wait.missing);
  }
  return result;
}

// Returns the waits between ranks that are in circles, or between two of them. A rank for which nobody waits, or that
// waits for nobody, cannot be in one.
std::vector<WaitEdge> waits_in_circles(std::vector<WaitEdge> waits) {
  for (std::size_t before = 0; before != waits.size();) {
    before = waits.size();
    std::set<const RankView*> waiting, missing;
    for (const WaitEdge& wait : waits) {
      waiting.insert(wait.waiter);
      missing.insert(wait.missing);
    }
    std::erase_if(
        waits, [&](const WaitEdge& wait) { return !missing.contains(wait.waiter) || !waiting.contains(wait.missing); });
  }
  return waits;
}

Verdict cycle(const std::vector<WaitEdge>& waits, const Moment& now) {
  // A rank that computes is not waiting for its open collective, which runs beside its work.
  std::vector<const RankView*> busy;
  for (const WaitEdge& wait : waits) {
    const bool computes = wait.missing->cpu_share > 0.5;
    if (computes && std::find(busy.begin(), busy.end(), wait.missing) == busy.end()) busy.push_back(wait.missing);
  }
  if (busy.size() == 1) return missing(Verdict::Kind::kMissing, busy, waits, now);
  const std::vector<WaitEdge> circles = waits_in_circles(waits);
  std::set<const RankView*> members;
  std::string places;
  for (const WaitEdge& wait : circles) {
    if (!members.insert(wait.waiter).second || members.size() > kMaxNamedRanks) continue;
    places += "; " + rank_ranges({wait.waiter->rank}) + " is in " + collective_text(*wait.call, wait.group->group) +
              ", which " + rank_ranges({wait.missing->rank}) +
              (wait.call->is_message ? " has not answered" : " has not entered");
  }
  std::vector<const RankView*> others;
  for (const WaitEdge& wait : waits) {
    if (!members.contains(wait.waiter)) others.push_back(wait.waiter);
  }
  Verdict verdict{.kind = Verdict::Kind::kCycle,
                  .culprits = ranks_of({members.begin(), members.end()}),
                  .waiter = circles.front().waiter->rank};
  verdict.sentence = rank_ranges(verdict.culprits) + " wait for each other" + places;
  if (members.size() > kMaxNamedRanks) verdict.sentence += "; and others";
  if (const std::vector<int> rest = ranks_of(others); !rest.empty()) {
    verdict.sentence += "; " + rank_ranges(rest) + (rest.size() == 1 ? " waits" : " wait") + " for them";
  }
  return verdict;
}

// A rank that has connected to the store waits there for all others. The work of a program without the library is not
// known.
std::optional<Verdict> not_at_store(const std::vector<RankView>& ranks, const Moment& now) {
  std::vector<const RankView*> missing_ranks;
  std::vector<const RankView*> there;
  for (const RankView& rank : ranks) {
    if (rank.is_in_group()) return std::nullopt;
    if (rank.at_store == true) there.push_back(&rank);
  }
  const bool are_ours =
      std::all_of(there.begin(), there.end(), [](const RankView* rank) { return rank->progress.has_value(); });
  for (const RankView& rank : ranks) {
    if (rank.at_store == false || (!rank.runs() && are_ours)) missing_ranks.push_back(&rank);
  }
  if (missing_ranks.empty() || there.empty()) return std::nullopt;
  Verdict verdict{
      .kind = Verdict::Kind::kNotAtStore, .culprits = ranks_of(missing_ranks), .waiter = there.front()->rank};
  const bool is_one = missing_ranks.size() == 1;
  const bool is_one_there = there.size() == 1;
  verdict.sentence =
      rank_ranges(verdict.culprits) + (is_one ? " has" : " have") + " no connection to the job's store, " +
      (are_ours ? "where " : "which ") + rank_ranges(ranks_of(there)) +
      (are_ours ? std::string(is_one_there ? " waits" : " wait") + " for all to connect"
                : std::string(is_one_there ? " has" : " have")) +
      "; " +
      position_text(*missing_ranks.front(), now, is_one ? "it" : rank_ranges({missing_ranks.front()->rank}).c_str());
  return verdict;
}

// For ranks that are all in the same collective.
std::optional<Verdict> unfinished(const std::vector<GroupCalls>& groups) {
  for (const GroupCalls& group : groups) {
    std::vector<int> inside;
    const CollectiveRecord* call = nullptr;
    for (const RankCalls& member : group.members) {
      const CollectiveRecord* open = member.first_open();
      if (open == nullptr || !member.rank->runs()) continue;
      if (call == nullptr) call = open;
      inside.push_back(member.rank->rank);
    }
    if (call == nullptr) continue;
    Verdict verdict{.kind = Verdict::Kind::kUnfinished, .waiter = inside.front()};
    const bool sees_all = static_cast<int>(group.members.size()) >= group.group.size;
    verdict.sentence =
        rank_ranges(inside) + (inside.size() == 1 ? " is in " : " are in ") + collective_text(*call, group.group) +
        (sees_all ? "; all ranks have entered it, but it does not complete: check the network between the ranks, and "
                    "the backend"
                  : ", which all observed ranks have entered; the missing ranks are on a node that has not reported "
                    "what they do");
    return verdict;
  }
  return std::nullopt;
}

Verdict no_rank_waits(const std::vector<RankView>& ranks, const Moment& now) {
  // A rank that closes its group waits for the others to do so, too.
  std::vector<const RankView*> at_work;
  std::vector<const RankView*> running;
  for (const RankView& rank : ranks) {
    if (!rank.runs()) continue;
    running.push_back(&rank);
    if (!rank.progress || rank.progress->phase != RankPhase::kClosing) at_work.push_back(&rank);
  }
  if (at_work.empty()) at_work = running;
  Verdict verdict{.kind = Verdict::Kind::kNoneWaits, .culprits = ranks_of(at_work)};
  if (at_work.size() < running.size() && !running.empty()) {
    for (const RankView* rank : running) {
      const bool closes = std::find(at_work.begin(), at_work.end(), rank) == at_work.end();
      if (closes && !verdict.waiter) verdict.waiter = rank->rank;
    }
  }
  // Another thread of the rank may be in an older collective.
  const bool has_older = std::any_of(running.begin(), running.end(), [](const RankView* rank) {
    return rank->progress && rank->progress->collectives_begun > ddp::detail::kRingEntries;
  });
  verdict.sentence =
      has_older ? "no rank waits in one of its last " + std::to_string(ddp::detail::kRingEntries) + " collectives; "
                : "no rank waits in a collective; ";
  verdict.sentence += positions_text(at_work, now);
  return verdict;
}

bool is_still_open(const Mismatch& mismatch) {
  const auto& members = mismatch.group->members;
  return std::any_of(members.begin(), members.end(), [&](const RankCalls& member) {
    const CollectiveRecord* open = member.first_open();
    return open != nullptr && open->number >= mismatch.number;
  });
}

Verdict diagnose(const std::vector<RankView>& ranks, const Moment& now) {
  const std::vector<GroupCalls> groups = group_calls(ranks);
  if (const auto mismatch = first_mismatch(groups); mismatch && is_still_open(*mismatch)) {
    return different_calls(*mismatch);
  }
  const std::vector<WaitEdge> waits = wait_edges(groups);
  std::vector<const RankView*> stopped;
  for (const RankView& rank : ranks) {
    if (rank.runs() && rank.process && rank.process->is_stopped()) stopped.push_back(&rank);
  }
  if (!stopped.empty()) return missing(Verdict::Kind::kStopped, stopped, waits, now);
  if (waits.empty()) {
    if (auto verdict = not_at_store(ranks, now)) return *verdict;
  }
  if (!waits.empty()) {
    const auto culprits = free_ranks(waits);
    return culprits.empty() ? cycle(waits, now) : missing(Verdict::Kind::kMissing, culprits, waits, now);
  }
  const bool is_any_unseen =
      std::any_of(ranks.begin(), ranks.end(), [](const RankView& rank) { return rank.runs() && !rank.progress; });
  if (is_any_unseen) return diagnose_unseen_ranks(ranks);
  if (auto verdict = unfinished(groups)) return *verdict;
  return no_rank_waits(ranks, now);
}

}  // namespace

Verdict diagnose_hang(const std::vector<RankView>& ranks, std::uint64_t now,
                      std::chrono::system_clock::time_point wall_time) {
  Verdict verdict = diagnose(ranks, {.page_clock = now});
  // Names of phases may have any characters.
  verdict.sentence = printable(verdict.sentence);
  verdict.lasting_sentence = printable(diagnose(ranks, {.page_clock = now, .wall_time = wall_time}).sentence);
  return verdict;
}

}  // namespace launcher

#include "comm/core/culprit_ranks.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>
#include <set>

#include "base/joined.h"

namespace ddp::detail {
namespace {

using Kind = RankState::Kind;
using Ranks = std::vector<int>;

std::string list(const Ranks& ranks) {
  return "rank " + joined(ranks);
}

std::string not_participating(const Ranks& ranks, const std::string& why) {
  return "; did not take part in it: " + list(ranks) + " (" + why + ")";
}

const CallRecord* find(const RankReport& report, uint64_t number) {
  const auto found = std::ranges::find(report.calls, number, &CallRecord::number);
  return found == report.calls.end() ? nullptr : &*found;
}

bool has_reached(const RankReport& report, uint64_t number) {
  return !report.calls.empty() && report.calls.back().number >= number;
}

template <typename Predicate>
Ranks ranks_where(const std::vector<RankState>& ranks, Predicate predicate) {
  Ranks found;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    if (predicate(ranks[rank])) found.push_back(static_cast<int>(rank));
  }
  return found;
}

Ranks ranks_of_kind(const std::vector<RankState>& ranks, Kind kind) {
  return ranks_where(ranks, [kind](const RankState& state) { return state.kind == kind; });
}

// The first call number at which the ranks have called different collectives.
struct Difference {
  uint64_t number = 0;
  std::map<std::string, Ranks> callers;  // by signature
  std::optional<std::string> majority;   // signature of more than half of the ranks that have called it
};

std::optional<Difference> first_difference(const std::vector<RankState>& ranks) {
  std::set<uint64_t> numbers;
  for (const RankState& state : ranks) {
    for (const CallRecord& call : state.report.calls) numbers.insert(call.number);
  }
  for (const uint64_t number : numbers) {
    Difference difference{.number = number, .callers = {}, .majority = {}};
    size_t all = 0;  // if only two ranks have called it, neither is a majority
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      const CallRecord* call = find(ranks[rank].report, number);
      if (call == nullptr) continue;
      difference.callers[call->signature].push_back(static_cast<int>(rank));
      ++all;
    }
    if (difference.callers.size() < 2) continue;
    for (const auto& [signature, who] : difference.callers) {
      if (2 * who.size() > all) difference.majority = signature;
    }
    return difference;
  }
  return std::nullopt;
}

std::string describe_different(const std::vector<RankState>& ranks) {
  const auto difference = first_difference(ranks);
  if (!difference) return "";
  std::string text = "; the ranks disagree on call number " + std::to_string(difference->number) + ": ";
  bool first = true;
  for (const auto& [signature, who] : difference->callers) {
    if (signature == difference->majority) continue;
    text += (first ? "" : ", ") + list(who) + " called " + signature;
    first = false;
  }
  return text + (difference->majority ? ", the others " + *difference->majority : "");
}

std::string seconds(std::chrono::milliseconds time) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", std::chrono::duration<double>(time).count());
  return text;
}

// Names ranks that are alive, are in no collective, and have not called this one. A rank that left a collective only
// recently is not named if another rank left long ago.
std::string describe_elsewhere(const std::vector<RankState>& ranks, uint64_t number) {
  const Ranks elsewhere = ranks_where(ranks, [number](const RankState& state) {
    const auto is_open = [](const CallRecord& call) { return !call.ended; };
    return state.kind == Kind::kAnswered && !state.report.compares && !has_reached(state.report, number) &&
           std::ranges::none_of(state.report.calls, is_open);
  });
  std::chrono::milliseconds longest{};
  for (const int rank : elsewhere) longest = std::max(longest, ranks[static_cast<size_t>(rank)].report.since_last);
  std::string text;
  for (const int rank : elsewhere) {
    const RankState& state = ranks[static_cast<size_t>(rank)];
    if (state.report.since_last < longest / 2) continue;
    const std::string last = state.report.calls.empty()
                                 ? "it has not called any collective yet"
                                 : "its last call was number " + std::to_string(state.report.calls.back().number) +
                                       ", " + state.report.calls.back().signature;
    text += not_participating({rank}, "it is running, but has been in no collective of this group for " +
                                          seconds(state.report.since_last) + "; " + last);
  }
  return text;
}

// At any call number, since ranks that are one collective apart see the same failure.
std::string describe_gone(const std::vector<RankState>& ranks) {
  if (const Ranks found = ranks_of_kind(ranks, Kind::kLeftOnError); !found.empty()) {
    return not_participating(found, "it stopped earlier because of its own error");
  }
  if (const Ranks found = ranks_of_kind(ranks, Kind::kSilent); !found.empty()) {
    return not_participating(found, "no answer: ended, stopped or unreachable");
  }
  return "";
}

}  // namespace

bool is_undecided(const std::vector<RankState>& ranks) {
  const auto difference = first_difference(ranks);
  if (!difference || difference->majority) return false;
  return std::ranges::any_of(ranks, [&](const RankState& state) {
    return state.kind == Kind::kAnswered && !has_reached(state.report, difference->number);
  });
}

std::string connect_culprits_text(const std::vector<RankState>& ranks) {
  if (std::string text = describe_gone(ranks); !text.empty()) return text;
  const Ranks missing = ranks_of_kind(ranks, Kind::kNeverArrived);
  return missing.empty() ? "" : "; never arrived: " + list(missing);
}

std::string culprits_text(const std::vector<RankState>& ranks, uint64_t number) {
  if (std::string text = describe_gone(ranks); !text.empty()) return text;
  if (std::string text = describe_different(ranks); !text.empty()) return text;
  const Ranks closed_before = ranks_where(ranks, [number](const RankState& state) {
    return state.kind == Kind::kClosed && !has_reached(state.report, number);
  });
  if (!closed_before.empty()) return not_participating(closed_before, "it has closed its group");
  return describe_elsewhere(ranks, number);
}

}  // namespace ddp::detail

#include "launcher/observe/watch/unseen_ranks.h"

#include <algorithm>
#include <map>
#include <utility>

#include "launcher/observe/watch/collective_text.h"

namespace launcher {
namespace {

using RankPhase = ddp::progress::Phase;

// Ranks that are at the same place of their programs.
struct PlaceGroup {
  std::string text{};  // "in all_reduce at main (train.py:20)"
  bool waits = false;  // true: they wait in a collective
  bool is_known = false;
  std::vector<int> ranks{};
};

constexpr double kBusyCpuShare = 0.5;  // a processor

std::string state_text(const RankView& rank) {
  if (!rank.process) return "gone";
  // A busy process may be found in another kernel function each time, so it counts as running.
  return rank.cpu_share > kBusyCpuShare || rank.process->state == 'R' ? "running" : to_text(*rank.process);
}

// A rank with a page is in a collective when it has not completed one.
PlaceGroup place_group(const RankView& rank) {
  if (!rank.runs()) return {.text = "ended (" + rank.ended + ")", .is_known = true};
  if (rank.progress) {
    const auto& calls = rank.progress->collectives;
    const auto open = std::find_if(calls.begin(), calls.end(), [](const auto& call) { return call.is_open(); });
    if (open == calls.end()) return {.text = "in " + rank.progress->phase_name, .is_known = true};
    return {
        .text = "in " + collective_text(*open, rank.progress->groups[open->group]), .waits = true, .is_known = true};
  }
  if (!rank.python) return {.text = state_text(rank)};
  const std::string line = rank.python->line.empty() ? "" : " at " + rank.python->line;
  if (!rank.python->call.empty()) return {.text = "in " + rank.python->call + line, .waits = true, .is_known = true};
  return {.text = state_text(rank) + line, .is_known = true};
}

// The largest group comes last.
std::vector<PlaceGroup> places_of(const std::vector<RankView>& ranks) {
  std::vector<PlaceGroup> places;
  for (const RankView& rank : ranks) {
    PlaceGroup place = place_group(rank);
    const auto same = std::find_if(places.begin(), places.end(), [&](const PlaceGroup& each) {
      return each.text == place.text && each.waits == place.waits;
    });
    PlaceGroup& group = same != places.end() ? *same : places.emplace_back(std::move(place));
    group.ranks.push_back(rank.rank);
  }
  std::stable_sort(places.begin(), places.end(),
                   [](const auto& a, const auto& b) { return a.ranks.size() < b.ranks.size(); });
  return places;
}

std::string sentence_of(const std::vector<PlaceGroup>& places) {
  constexpr std::size_t kMaxNamedRanks = 4;
  std::string text;
  for (std::size_t i = 0; i < std::min(places.size(), kMaxNamedRanks); ++i) {
    const PlaceGroup& place = places[i];
    text += (i == 0 ? "" : "; ") + rank_ranges(place.ranks);
    const bool has_ended = place.text.starts_with("ended");
    text += place.ranks.size() == 1 ? (has_ended ? " has " : " is ") : (has_ended ? " have " : " are ");
    text += place.text;
  }
  return places.size() > kMaxNamedRanks ? text + "; and so on" : text;
}

void append(std::vector<int>& ranks, const PlaceGroup& place) {
  ranks.insert(ranks.end(), place.ranks.begin(), place.ranks.end());
  std::sort(ranks.begin(), ranks.end());
}

// Returns the ranks that are at another place than most; all ranks if there is no majority.
std::vector<int> minority_ranks(const std::vector<PlaceGroup>& places) {
  std::vector<int> ranks;
  const bool has_majority = places.size() > 1 && places[places.size() - 2].ranks.size() < places.back().ranks.size();
  for (std::size_t i = 0; i + (has_majority ? 1 : 0) < places.size(); ++i) append(ranks, places[i]);
  return ranks;
}

}  // namespace

Verdict diagnose_unseen_ranks(const std::vector<RankView>& ranks) {
  std::vector<PlaceGroup> places = places_of(ranks);
  // Ranks that wait in a collective come last.
  const auto waiting =
      std::stable_partition(places.begin(), places.end(), [](const auto& each) { return !each.waits; });
  Verdict verdict{.kind = Verdict::Kind::kUnseen, .sentence = sentence_of(places)};
  if (waiting != places.end() && waiting != places.begin()) {
    verdict.kind = Verdict::Kind::kMissing;
    for (auto place = places.begin(); place != waiting; ++place) append(verdict.culprits, *place);
    verdict.waiter = places.back().ranks.front();
    verdict.sentence += places.back().ranks.size() == 1 && waiting + 1 == places.end() ? ", and waits" : ", and wait";
    verdict.sentence += verdict.culprits.size() == 1 ? " for it" : " for them";
    return verdict;
  }
  verdict.culprits = minority_ranks(places);
  if (waiting == places.begin()) {
    verdict.kind = places.size() > 1 ? Verdict::Kind::kDifferentCalls : Verdict::Kind::kUnfinished;
    verdict.waiter = places.back().ranks.front();
    if (places.size() == 1) verdict.culprits.clear();
    verdict.sentence += places.size() > 1
                            ? ": the ranks are in different collectives"
                            : ", which does not complete: check the network between them, and their backend";
    return verdict;
  }
  // The program uses neither Python nor the library.
  if (std::any_of(places.begin(), places.end(), [](const auto& each) { return !each.is_known; })) {
    const bool is_one = places.size() == 1;
    verdict.sentence = (is_one ? rank_ranges(places.front().ranks) + ": no CPU time used, and nothing read or written"
                               : verdict.sentence) +
                       "; nothing else is known about programs that do not use the library";
  } else {
    verdict.sentence += "; no rank waits in a collective";
  }
  return verdict;
}

}  // namespace launcher

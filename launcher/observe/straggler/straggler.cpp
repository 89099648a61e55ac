#include "launcher/observe/straggler/straggler.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <functional>
#include <optional>
#include <utility>

#include "launcher/observe/watch/collective_text.h"

namespace launcher {
namespace {

using RankPhase = ddp::progress::Phase;

// Of the slices, those in which a straggler is above the median by half of the threshold.
constexpr double kMostSlices = 0.7;
// What is lost must be worth a line, whatever the rank's share of the step is.
constexpr double kLeastShareOfStep = 0.02;
// Of what the rank takes longer the others must have waited so much.
constexpr double kLeastWaited = 0.5;

const RankShare* find(const Slice& slice, int rank) {
  const auto found = std::find_if(slice.begin(), slice.end(), [&](const auto& share) { return share.rank == rank; });
  return found != slice.end() ? &*found : nullptr;
}

// In each slice, the rank's own time a step as a multiple of the median of all.
std::vector<double> ratios_of(const std::vector<Slice>& slices, int rank) {
  std::vector<double> ratios;
  for (const Slice& slice : slices) {
    const RankShare* share = find(slice, rank);
    const double median = median_of(slice, [](const RankShare& each) { return each.own_per_step(); });
    if (share != nullptr && median > 0) ratios.push_back(share->own_per_step() / median);
  }
  return ratios;
}

bool is_lasting(const std::vector<double>& ratios, double threshold) {
  const auto slow =
      std::count_if(ratios.begin(), ratios.end(), [&](double ratio) { return ratio > 1 + threshold / 2; });
  return !ratios.empty() && low_median(ratios) > 1 + threshold &&
         static_cast<double>(slow) >= kMostSlices * static_cast<double>(ratios.size());
}

bool is_waited_for(const RankShare& slow, const Slice& all, double excess_us) {
  const double waited = median_of(all, [](const RankShare& each) { return each.waited_per_step(); });
  // Of two ranks the lower one of both is the slow one's own.
  const auto& others = *std::max_element(
      all.begin(), all.end(), [](const auto& a, const auto& b) { return a.waited_per_step() < b.waited_per_step(); });
  const double others_waited = all.size() == 2 ? others.waited_per_step() : waited;
  return others_waited - slow.waited_per_step() >= kLeastWaited * excess_us;
}

// In which of its phases, the program's own by their names, it is furthest above the median of all.
std::string longest_phase(const RankShare& slow, const Slice& all) {
  std::string longest;
  double most = -1;
  const auto compare = [&](const std::string& name, const std::function<double(const RankShare&)>& time) {
    const double excess = time(slow) - median_of(all, time);
    if (excess > most) {
      most = excess;
      longest = name;
    }
  };
  for (std::size_t kind = 0; kind < ddp::detail::kPhaseKinds; ++kind) {
    const auto phase = static_cast<RankPhase>(kind);
    if (phase == RankPhase::kUser) continue;
    compare(std::string(ddp::progress::name_of(phase)),
            [kind](const RankShare& each) { return each.phase_per_step(kind); });
  }
  for (const auto& [name, time] : slow.named) {
    compare(name, [&name = name](const RankShare& each) { return each.named_per_step(name); });
  }
  compare("phases of its own", [](const RankShare& each) { return each.unnamed_per_step(); });
  return longest;
}

// "12.4 ms"
std::string short_time_text(double microseconds) {
  if (microseconds >= 1e6) return duration_text(static_cast<std::uint64_t>(microseconds));
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.*f ms", microseconds < 1e4 ? 2 : 1, microseconds / 1e3);
  return text.data();
}

// A step's mean without the time for which the rank was ready and had no CPU.
double own_with_cpu(const RankShare& share) {
  return share.own_per_step() -
         static_cast<double>(share.held.run_delay_us) / static_cast<double>(std::max<std::uint64_t>(share.steps, 1));
}

std::optional<Straggler> judge(const RankShare& slow, const Slice& all, const std::vector<Slice>& slices,
                               double threshold) {
  const double median = median_of(all, [](const RankShare& each) { return each.own_per_step(); });
  const double excess = slow.own_per_step() - median;
  const double step = slow.time / static_cast<double>(std::max<std::uint64_t>(slow.steps, 1));
  if (median <= 0 || excess <= threshold * median || excess < kLeastShareOfStep * step) return std::nullopt;
  const auto ratios = ratios_of(slices, slow.rank);
  if (!is_lasting(ratios, threshold) || !is_waited_for(slow, all, excess)) return std::nullopt;
  const double median_with_cpu = median_of(all, own_with_cpu);
  return Straggler{.rank = slow.rank,
                   .host = slow.host,
                   .phase = longest_phase(slow, all),
                   .excess = low_median(ratios) - 1,
                   .own_us = slow.own_per_step(),
                   .median_us = median,
                   .reason = reason_of(slow, all),
                   .for_want_of_cpu = own_with_cpu(slow) <= (1 + threshold / 2) * median_with_cpu};
}

}  // namespace

std::vector<Straggler> find_stragglers(const std::vector<Slice>& slices, double threshold) {
  std::vector<Straggler> found;
  const Slice all = sum_of(slices);
  if (all.size() < 2) return found;
  for (const RankShare& share : all) {
    if (auto straggler = judge(share, all, slices, threshold)) found.push_back(std::move(*straggler));
  }
  return found;
}

std::string to_text(const Straggler& straggler) {
  const std::string phase = straggler.phase == "between phases" ? straggler.phase : "in " + straggler.phase;
  std::string text = "rank " + std::to_string(straggler.rank) +
                     (straggler.host.empty() ? "" : " (" + straggler.host + ")") + " holds up the others " + phase +
                     ": its own time is " + std::to_string(std::lround(straggler.excess * 100)) +
                     " % above the median, " + short_time_text(straggler.own_us) + " instead of " +
                     short_time_text(straggler.median_us) + " a step";
  if (!straggler.reason.empty()) text += "; " + straggler.reason;
  return text;
}

}  // namespace launcher

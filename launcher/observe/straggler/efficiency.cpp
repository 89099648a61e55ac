#include "launcher/observe/straggler/efficiency.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "launcher/observe/watch/collective_text.h"
#include "launcher/os/system/formatted.h"
#include "launcher/os/system/utf8.h"

namespace launcher {
namespace {

constexpr std::uint64_t kLeastSteps = 50;
constexpr double kLeastTime = 5e6;
// Phases with less are not worth a word.
constexpr double kLeastShare = 0.005;
constexpr auto kUser = static_cast<std::size_t>(ddp::progress::Phase::kUser);

}  // namespace

void Efficiency::add(const Slice& slice) {
  if (slice.size() < 2) return;
  std::vector<double> own;
  for (const RankShare& share : slice) own.push_back(share.own_per_step());
  const auto slowest = std::max_element(
      slice.begin(), slice.end(), [](const auto& a, const auto& b) { return a.own_per_step() < b.own_per_step(); });
  const double lost =
      std::max(0.0, slowest->own_per_step() - low_median(std::move(own))) * static_cast<double>(slowest->steps);
  lost_ += lost;
  blame_[slowest->rank] += lost;
  slices_.push_back(slice);
  slices_ = {sum_of(slices_)};
}

std::string Efficiency::text() const {
  if (slices_.empty()) return "";
  double time = 0;
  double waited = 0;
  double longest = 0;
  std::uint64_t steps = 0;
  std::array<double, ddp::detail::kPhaseKinds> phases{};
  std::map<std::string, double> named;
  for (const RankShare& share : slices_.front()) {
    time += share.time;
    waited += share.waited;
    longest = std::max(longest, share.time);
    steps = std::max(steps, share.steps);
    for (std::size_t kind = 0; kind < phases.size(); ++kind) phases[kind] += share.phases[kind];
    for (const auto& [name, own] : share.named) named[name] += own;
    phases[kUser] += share.unnamed() - share.phases[kUser];
  }
  if (steps < kLeastSteps || longest < kLeastTime) return "";
  std::string text = "efficiency " + percent((time - waited) / time) + ":";
  std::vector<std::pair<double, std::string>> shares;
  for (std::size_t kind = 0; kind < phases.size(); ++kind) {
    const auto name = ddp::progress::name_of(static_cast<ddp::progress::Phase>(kind));
    if (phases[kind] > kLeastShare * time) shares.emplace_back(phases[kind] / time, name);
  }
  for (const auto& [name, own] : named) {
    if (own > kLeastShare * time) shares.emplace_back(own / time, printable(name));
  }
  for (const auto& [share, name] : shares) text += " " + name + " " + percent(share) + ",";
  text += " waiting for collectives " + percent(waited / time) + " of " +
          duration_text(static_cast<std::uint64_t>(longest)) + " in " + std::to_string(steps) + " steps; ";
  if (lost_ < kLeastShare * longest) return text + "nearly nothing lost to the slowest rank";
  text +=
      duration_text(static_cast<std::uint64_t>(lost_)) + " (" + percent(lost_ / longest) + ") lost to the slowest rank";
  const auto worst =
      std::max_element(blame_.begin(), blame_.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return text +
         (worst->second > lost_ / 2 ? ", mostly rank " + std::to_string(worst->first) : ", in turn");
}

}  // namespace launcher

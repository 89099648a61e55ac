#include "launcher/observe/straggler/straggler_tracker.h"

#include <algorithm>
#include <utility>

namespace launcher {
namespace {

// A window is so many steps of each rank, and so many slices.
constexpr std::uint64_t kWindowSteps = 50;
constexpr std::size_t kWindowSlices = 8;
// A rank is named once it was the straggler of so many windows in a row. Waits for a CPU come and go with whatever else
// the machine does, so they must last longer.
constexpr int kWindows = 2;
constexpr int kWindowsForWantOfCpu = 4;
constexpr int kQuietWindows = 2;

double excess_of(const std::vector<Slice>& window, int rank) {
  const Slice all = sum_of(window);
  std::vector<double> own;
  double its = 0;
  for (const RankShare& share : all) {
    own.push_back(share.own_per_step());
    if (share.rank == rank) its = share.own_per_step();
  }
  const double median = low_median(std::move(own));
  return median > 0 ? its / median - 1 : 0;
}

double seconds_of(const std::vector<Slice>& window) {
  double longest = 0;
  for (const RankShare& share : sum_of(window)) longest = std::max(longest, share.time / 1e6);
  return longest;
}

}  // namespace

bool StragglerTracker::is_window() const {
  if (window_.size() < kWindowSlices) return false;
  const Slice all = sum_of(window_);
  return std::all_of(all.begin(), all.end(), [](const RankShare& share) { return share.steps >= kWindowSteps; });
}

std::vector<StragglerNews> StragglerTracker::add(Slice slice) {
  std::vector<StragglerNews> news;
  // Where ranks come and go there is nothing to compare.
  const auto is_other = [&](const Slice& before) {
    return !std::equal(before.begin(), before.end(), slice.begin(), slice.end(),
                       [](const RankShare& a, const RankShare& b) { return a.rank == b.rank; });
  };
  if (!window_.empty() && is_other(window_.front())) window_.clear();
  window_.push_back(std::move(slice));
  if (!is_window()) return news;
  judge_window(news);
  look_whether_over(news);
  window_.clear();
  return news;
}

void StragglerTracker::judge_window(std::vector<StragglerNews>& news) {
  const auto found = find_stragglers(window_, threshold_);
  std::erase_if(suspicions_, [&](const auto& each) {
    return std::none_of(found.begin(), found.end(), [&](const auto& one) { return one.rank == each.first; });
  });
  for (const Straggler& straggler : found) {
    if (named_.contains(straggler.rank)) continue;
    Suspicion& suspicion = suspicions_[straggler.rank];
    ++suspicion.windows;
    suspicion.windows_with_cpu = straggler.for_want_of_cpu ? 0 : suspicion.windows_with_cpu + 1;
    suspicion.slices.insert(suspicion.slices.end(), window_.begin(), window_.end());
    if (suspicion.windows_with_cpu < kWindows && suspicion.windows < kWindowsForWantOfCpu) continue;
    // In which phase, and by how much, is surer of all windows than of the last.
    Straggler named = straggler;
    for (Straggler& of_all : find_stragglers(suspicion.slices, threshold_ / 2)) {
      if (of_all.rank == straggler.rank) named = std::move(of_all);
    }
    news.push_back({named});
    named_.emplace(straggler.rank, Named{std::move(named)});
  }
}

void StragglerTracker::look_whether_over(std::vector<StragglerNews>& news) {
  const double seconds = seconds_of(window_);
  for (auto named = named_.begin(); named != named_.end();) {
    named->second.seconds += seconds;
    const bool is_quiet = excess_of(window_, named->first) < threshold_ / 2;
    named->second.quiet_windows = is_quiet ? named->second.quiet_windows + 1 : 0;
    if (named->second.quiet_windows < kQuietWindows) {
      ++named;
      continue;
    }
    news.push_back({named->second.straggler, true, named->second.seconds - kQuietWindows * seconds});
    named = named_.erase(named);
  }
}

}  // namespace launcher

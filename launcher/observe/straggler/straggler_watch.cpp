#include "launcher/observe/straggler/straggler_watch.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "launcher/observe/watch/collective_text.h"
#include "launcher/os/system/formatted.h"
#include "launcher/os/system/utf8.h"

namespace launcher {
namespace {

constexpr std::uint64_t kMinSteps = 50;
constexpr double kMinTime = 5e6;
// Phases with a smaller share are not reported.
constexpr double kMinReportedShare = 0.005;
constexpr auto kUser = static_cast<std::size_t>(ddp::progress::Phase::kUser);

constexpr std::chrono::milliseconds kStragglerInterval{500};

}  // namespace

void Efficiency::add(const StepInterval& interval) {
  if (interval.size() < 2) return;
  std::vector<double> own;
  for (const RankShare& share : interval) own.push_back(share.own_per_step());
  const auto slowest = std::max_element(interval.begin(), interval.end(), [](const auto& a, const auto& b) {
    return a.own_per_step() < b.own_per_step();
  });
  const double lost =
      std::max(0.0, slowest->own_per_step() - low_median(std::move(own))) * static_cast<double>(slowest->steps);
  lost_ += lost;
  lost_time_by_rank_[slowest->rank] += lost;
  intervals_.push_back(interval);
  intervals_ = {sum_of(intervals_)};
}

std::string Efficiency::text() const {
  if (intervals_.empty()) return "";
  double time = 0;
  double waited = 0;
  double longest = 0;
  std::uint64_t steps = 0;
  std::array<double, ddp::detail::kPhaseKinds> phases{};
  std::map<std::string, double> named;
  for (const RankShare& share : intervals_.front()) {
    time += share.time;
    waited += share.waited;
    longest = std::max(longest, share.time);
    steps = std::max(steps, share.steps);
    for (std::size_t kind = 0; kind < phases.size(); ++kind) phases[kind] += share.phases[kind];
    for (const auto& [name, own] : share.named) named[name] += own;
    phases[kUser] += share.unnamed() - share.phases[kUser];
  }
  if (steps < kMinSteps || longest < kMinTime) return "";
  std::string text = "efficiency " + percent((time - waited) / time) + ":";
  std::vector<std::pair<double, std::string>> shares;
  for (std::size_t kind = 0; kind < phases.size(); ++kind) {
    const auto name = ddp::progress::name_of(static_cast<ddp::progress::Phase>(kind));
    if (phases[kind] > kMinReportedShare * time) shares.emplace_back(phases[kind] / time, name);
  }
  for (const auto& [name, own] : named) {
    if (own > kMinReportedShare * time) shares.emplace_back(own / time, printable(name));
  }
  for (const auto& [share, name] : shares) text += " " + name + " " + percent(share) + ",";
  text += " waiting for collectives " + percent(waited / time) + " of " +
          duration_text(static_cast<std::uint64_t>(longest)) + " in " + std::to_string(steps) + " steps; ";
  if (lost_ < kMinReportedShare * longest) return text + "nearly nothing lost to the slowest rank";
  text +=
      duration_text(static_cast<std::uint64_t>(lost_)) + " (" + percent(lost_ / longest) + ") lost to the slowest rank";
  const auto worst = std::max_element(lost_time_by_rank_.begin(), lost_time_by_rank_.end(),
                                      [](const auto& a, const auto& b) { return a.second < b.second; });
  return text + (worst->second > lost_ / 2 ? ", mostly rank " + std::to_string(worst->first) : ", which varies");
}

StragglerWatch::StragglerWatch(EventLoop& loop, StragglerWatchOptions options)
    : loop_(loop), options_(std::move(options)), tracker_(options_.threshold) {
  if (options_.threshold > 0) timer_.start_in(kStragglerInterval, [this] { sample_ranks(); });
}

void StragglerWatch::sample_ranks() {
  timer_.start_in(kStragglerInterval, [this] { sample_ranks(); });
  take(options_.ranks());
}

// Ranks without a progress page are ignored.
std::vector<RankSample> StragglerWatch::samples_of(const std::vector<WatchedRank>& ranks) {
  std::vector<RankSample> samples;
  for (const WatchedRank& rank : ranks) {
    if (rank.page == nullptr) continue;
    const auto totals = ddp::detail::read_step_totals(*rank.page);
    if (!totals) continue;
    RankSample sample{.rank = rank.rank, .host = options_.host, .totals = *totals};
    if (rank.runs()) sample.delays = kernel_.read_counters(writer_of(rank));
    if (options_.gpu_of) sample.gpu = options_.gpu_of(rank.rank);
    samples.push_back(std::move(sample));
  }
  return samples;
}

void StragglerWatch::take(const std::vector<WatchedRank>& ranks) {
  std::vector<RankSample> samples = samples_of(ranks);
  if (options_.on_samples && !samples.empty()) options_.on_samples(samples);
  if (options_.others) {
    for (RankSample& sample : options_.others()) samples.push_back(std::move(sample));
  }
  std::sort(samples.begin(), samples.end(), [](const auto& a, const auto& b) { return a.rank < b.rank; });
  auto interval = builder_.add(samples);
  if (!interval) return;
  for (const RankShare& share : *interval) {
    times_[share.rank] = {share.own_per_step() / 1e6, share.waited_per_step() / 1e6};
  }
  if (!options_.finds_stragglers) return;
  efficiency_.add(*interval);
  for (const StragglerChange& change : tracker_.add(std::move(*interval))) {
    if (change.is_over) {
      named_.erase(change.straggler.rank);
    } else {
      named_[change.straggler.rank] = change.straggler;
    }
    if (options_.on_change) options_.on_change(change);
  }
}

std::optional<StepTimes> StragglerWatch::step_times(int rank) const {
  const auto found = times_.find(rank);
  return found != times_.end() ? std::optional(found->second) : std::nullopt;
}

const Straggler* StragglerWatch::straggler(int rank) const {
  const auto found = named_.find(rank);
  return found != named_.end() ? &found->second : nullptr;
}

std::string StragglerWatch::finish(const std::vector<WatchedRank>& ranks) {
  if (options_.threshold <= 0) return "";
  options_.on_change = nullptr;  // no change is reported at the end of the job
  take(ranks);
  return efficiency_.text();
}

}  // namespace launcher

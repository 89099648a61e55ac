#include "launcher/observe/straggler/step_interval.h"

#include <algorithm>
#include <utility>

namespace launcher {
namespace {

// A rank that is this many samples behind the others is left out. It may have finished, for example.
constexpr int kMaxSamplesBehind = 4;
constexpr std::uint64_t kMaxStepsBehind = 2;

double difference(std::uint64_t now, std::uint64_t before) {
  return now > before ? static_cast<double>(now - before) : 0;
}

DelayCounters delays_between(const DelayCounters& a, const DelayCounters& b) {
  const auto added = [](std::uint64_t now, std::uint64_t before) { return now > before ? now - before : 0; };
  return {.on_cpu_us = added(b.on_cpu_us, a.on_cpu_us),
          .run_delay_us = added(b.run_delay_us, a.run_delay_us),
          .throttled_us = added(b.throttled_us, a.throttled_us),
          .major_faults = added(b.major_faults, a.major_faults),
          .disk_us = added(b.disk_us, a.disk_us),
          .disk_sample_count = added(b.disk_sample_count, a.disk_sample_count),
          .sample_count = added(b.sample_count, a.sample_count),
          .cpus = b.cpus};
}

RankShare share_of(const RankSample& a, const RankSample& b) {
  RankShare share{.rank = b.rank,
                  .host = b.host,
                  .steps = b.totals.steps - a.totals.steps,
                  .time = difference(b.totals.time, a.totals.time),
                  .delays = delays_between(a.delays, b.delays),
                  .gpu = b.gpu};
  double all_waited = 0;
  for (std::size_t kind = 0; kind < ddp::detail::kPhaseKinds; ++kind) {
    all_waited += difference(b.totals.waited[kind], a.totals.waited[kind]);
  }
  // Several threads may wait at the same time, but the rank waits only once.
  const double part = all_waited > share.time ? share.time / all_waited : 1;
  for (std::size_t kind = 0; kind < ddp::detail::kPhaseKinds; ++kind) {
    const double waited = part * difference(b.totals.waited[kind], a.totals.waited[kind]);
    // Phases are measured with a coarse clock, waits with an exact one, so a phase may appear shorter than its waits.
    share.phases[kind] = difference(b.totals.spent[kind], a.totals.spent[kind]) - waited;
    share.waiting[kind] = waited;
    share.waited += waited;
  }
  for (const auto& [name, now] : b.totals.named) {
    const auto before = a.totals.named.find(name);
    const ddp::detail::NamedTime since = before != a.totals.named.end() ? before->second : ddp::detail::NamedTime{};
    share.named[name] = difference(now.spent, since.spent) - part * difference(now.waited, since.waited);
  }
  return share;
}

bool is_same_program(const RankSample& a, const RankSample& b) {
  return a.totals.process == b.totals.process && b.totals.steps >= a.totals.steps;
}

}  // namespace

double RankShare::unnamed() const {
  double rest = phases[static_cast<std::size_t>(ddp::progress::Phase::kUser)];
  for (const auto& [name, own_time] : named) rest -= own_time;
  return std::max(rest, 0.0);
}

void RankShare::add(const RankShare& later) {
  steps += later.steps;
  time += later.time;
  waited += later.waited;
  for (std::size_t kind = 0; kind < phases.size(); ++kind) {
    phases[kind] += later.phases[kind];
    waiting[kind] += later.waiting[kind];
  }
  delays.on_cpu_us += later.delays.on_cpu_us;
  delays.run_delay_us += later.delays.run_delay_us;
  delays.throttled_us += later.delays.throttled_us;
  delays.major_faults += later.delays.major_faults;
  delays.disk_us += later.delays.disk_us;
  delays.disk_sample_count += later.delays.disk_sample_count;
  delays.sample_count += later.delays.sample_count;
  delays.cpus = later.delays.cpus;
  for (const auto& [name, own_time] : later.named) named[name] += own_time;
  gpu = later.gpu;
}

StepInterval sum_of(const std::vector<StepInterval>& intervals) {
  std::map<int, RankShare> sums;
  for (const StepInterval& interval : intervals) {
    for (const RankShare& share : interval) {
      const auto [found, is_new] = sums.emplace(share.rank, share);
      if (!is_new) found->second.add(share);
    }
  }
  StepInterval sum;
  for (auto& [rank, share] : sums) sum.push_back(std::move(share));
  return sum;
}

double low_median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double median_of(const StepInterval& interval, const std::function<double(const RankShare&)>& value) {
  std::vector<double> values;
  for (const RankShare& share : interval) values.push_back(value(share));
  return low_median(std::move(values));
}

bool StepIntervalBuilder::is_interval_complete(const std::vector<RankSample>& samples) {
  std::uint64_t furthest = 0;
  for (const RankSample& sample : samples) {
    furthest = std::max(furthest, sample.totals.steps - tracks_[sample.rank].at_begin.totals.steps);
  }
  if (furthest == 0) return false;
  bool all_have = true;
  for (const RankSample& sample : samples) {
    Track& track = tracks_[sample.rank];
    if (sample.totals.steps > track.at_begin.totals.steps) continue;
    if (furthest >= kMaxStepsBehind) ++track.looks_without_step;
    all_have = all_have && track.looks_without_step >= kMaxSamplesBehind;
  }
  return all_have;
}

std::optional<StepInterval> StepIntervalBuilder::add(const std::vector<RankSample>& samples) {
  for (const RankSample& sample : samples) {
    Track& track = tracks_[sample.rank];
    if (track.at_begin.totals.steps == 0 || !is_same_program(track.at_begin, sample)) track = Track{sample};
  }
  if (!is_interval_complete(samples)) return std::nullopt;
  StepInterval interval;
  for (const RankSample& sample : samples) {
    Track& track = tracks_[sample.rank];
    if (sample.totals.steps == track.at_begin.totals.steps) continue;
    interval.push_back(share_of(track.at_begin, sample));
    track = Track{sample};
  }
  return interval;
}

}  // namespace launcher

#include "launcher/observe/straggler/straggler.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <functional>
#include <optional>
#include <utility>

#include "launcher/observe/watch/collective_text.h"
#include "launcher/os/system/formatted.h"

namespace launcher {
namespace {

using RankPhase = ddp::progress::Phase;

// The least share of intervals in which a straggler is above the median by half of the threshold.
constexpr double kMaxIntervals = 0.7;
// The lost time must be at least this share of the step to be reported.
constexpr double kMinShareOfStep = 0.02;
// The other ranks must have waited for at least this share of the time that the rank takes longer.
constexpr double kMinWaited = 0.5;

const RankShare* find(const StepInterval& interval, int rank) {
  const auto found =
      std::find_if(interval.begin(), interval.end(), [&](const auto& share) { return share.rank == rank; });
  return found != interval.end() ? &*found : nullptr;
}

// Returns, for each interval, the rank's own time per step divided by the median of all ranks.
std::vector<double> ratios_of(const std::vector<StepInterval>& intervals, int rank) {
  std::vector<double> ratios;
  for (const StepInterval& interval : intervals) {
    const RankShare* share = find(interval, rank);
    const double median = median_of(interval, [](const RankShare& each) { return each.own_per_step(); });
    if (share != nullptr && median > 0) ratios.push_back(share->own_per_step() / median);
  }
  return ratios;
}

bool is_lasting(const std::vector<double>& ratios, double threshold) {
  const auto slow =
      std::count_if(ratios.begin(), ratios.end(), [&](double ratio) { return ratio > 1 + threshold / 2; });
  return !ratios.empty() && low_median(ratios) > 1 + threshold &&
         static_cast<double>(slow) >= kMaxIntervals * static_cast<double>(ratios.size());
}

bool is_waited_for(const RankShare& slow, const StepInterval& all, double excess_us) {
  const double waited = median_of(all, [](const RankShare& each) { return each.waited_per_step(); });
  // With two ranks, the low median is that of the slow one, so the maximum is used.
  const auto& others = *std::max_element(
      all.begin(), all.end(), [](const auto& a, const auto& b) { return a.waited_per_step() < b.waited_per_step(); });
  const double others_waited = all.size() == 2 ? others.waited_per_step() : waited;
  return others_waited - slow.waited_per_step() >= kMinWaited * excess_us;
}

// Returns the phase in which the rank is furthest above the median of all. Phases of the program have their own names.
std::string longest_phase(const RankShare& slow, const StepInterval& all) {
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

// Returns the mean own time of a step, without the time in which the rank was ready but had no CPU.
double own_with_cpu(const RankShare& share) {
  return share.own_per_step() -
         static_cast<double>(share.delays.run_delay_us) / static_cast<double>(std::max<std::uint64_t>(share.steps, 1));
}

std::optional<Straggler> straggler_of(const RankShare& slow, const StepInterval& all,
                                      const std::vector<StepInterval>& intervals, double threshold) {
  const double median = median_of(all, [](const RankShare& each) { return each.own_per_step(); });
  const double excess = slow.own_per_step() - median;
  const double step = slow.time / static_cast<double>(std::max<std::uint64_t>(slow.steps, 1));
  if (median <= 0 || excess <= threshold * median || excess < kMinShareOfStep * step) return std::nullopt;
  const auto ratios = ratios_of(intervals, slow.rank);
  if (!is_lasting(ratios, threshold) || !is_waited_for(slow, all, excess)) return std::nullopt;
  const double median_with_cpu = median_of(all, own_with_cpu);
  return Straggler{.rank = slow.rank,
                   .host = slow.host,
                   .phase = longest_phase(slow, all),
                   .excess = low_median(ratios) - 1,
                   .own_us = slow.own_per_step(),
                   .median_us = median,
                   .reason = reason_of(slow, all),
                   .due_to_cpu_waits = own_with_cpu(slow) <= (1 + threshold / 2) * median_with_cpu};
}

// How far above the median of all ranks a value must be: most are shares of the time.
constexpr double kThrottled = 0.03;
constexpr double kMinCpuWaitShare = 0.03;
constexpr double kMinDiskWaitShare = 0.05;
constexpr double kMinDiskSampleShare = 0.1;
constexpr double kMinFaultsPerSecond = 20;
constexpr double kMaxSlowClockRatio = 0.95;
// A share of the rank's own time.
constexpr double kMinSleepShare = 0.2;

// Bits of nvmlClocksEventReasons.
struct Limit {
  std::uint64_t bits;
  const char* text;
};
constexpr std::array kLimits = {
    Limit{0x20 | 0x40, "its GPU is too hot"}, Limit{0x80, "its GPU's power supply slows it down"},
    Limit{0x08, "its GPU's hardware slows it down"}, Limit{0x04, "its GPU is at its power limit"}};

using Value = std::function<double(const RankShare&)>;

double above_median(const RankShare& slow, const StepInterval& all, const Value& value) {
  return value(slow) - median_of(all, value);
}

Value share_of_time(std::uint64_t DelayCounters::*part) {
  return
      [part](const RankShare& rank) { return rank.time > 0 ? static_cast<double>(rank.delays.*part) / rank.time : 0; };
}

std::string reason_of_gpu(const RankShare& slow, const StepInterval& all) {
  if (!slow.gpu) return "";
  std::uint64_t others = 0;
  for (const RankShare& share : all) {
    if (share.rank != slow.rank && share.gpu) others |= share.gpu->limits;
  }
  for (const Limit& limit : kLimits) {
    if ((slow.gpu->limits & limit.bits) == 0 || (others & limit.bits) != 0) continue;
    return std::string(limit.text) + " (" + std::to_string(slow.gpu->celsius) + " degrees, " +
           std::to_string(slow.gpu->clock_mhz) + " MHz)";
  }
  const double clock =
      median_of(all, [](const RankShare& each) { return each.gpu ? static_cast<double>(each.gpu->clock_mhz) : 0; });
  if (slow.gpu->clock_mhz >= kMaxSlowClockRatio * clock) return "";
  return "its GPU runs at " + std::to_string(slow.gpu->clock_mhz) + " MHz, the others' at " +
         std::to_string(std::lround(clock));
}

std::string reason_of_disk(const RankShare& slow, const StepInterval& all) {
  const Value faults = [](const RankShare& rank) {
    return rank.time > 0 ? static_cast<double>(rank.delays.major_faults) * 1e6 / rank.time : 0;
  };
  if (const double rate = above_median(slow, all, faults); rate > kMinFaultsPerSecond) {
    return "its memory is swapped in, or read from files: " + std::to_string(std::lround(faults(slow))) +
           " times a second";
  }
  const Value disk = share_of_time(&DelayCounters::disk_us);
  if (above_median(slow, all, disk) > kMinDiskWaitShare)
    return "it waits for a disk " + percent(disk(slow)) + " of the time";
  const Value seen = [](const RankShare& rank) {
    return rank.delays.sample_count > 0
               ? static_cast<double>(rank.delays.disk_sample_count) / static_cast<double>(rank.delays.sample_count)
               : 0;
  };
  if (above_median(slow, all, seen) > kMinDiskSampleShare)
    return "it waits for a disk " + percent(seen(slow)) + " of the time";
  return "";
}

// Describes the rank's own time when no value distinguishes the rank from the others. A slow rank hardly waits for
// others, so nearly all of its computation is in its own time. For the other ranks that is not known.
std::string describe_own_time(const RankShare& slow) {
  if (slow.delays.on_cpu_us == 0 || slow.own_time() <= 0) return "";
  const double computes = std::min(1.0, static_cast<double>(slow.delays.on_cpu_us) / slow.own_time());
  const double sleeps = std::max(0.0, 1 - computes - static_cast<double>(slow.delays.run_delay_us) / slow.own_time());
  if (sleeps > kMinSleepShare) {
    return "it sleeps " + percent(sleeps) +
           " of its own time, waiting for example for a lock, the network, a device or another process";
  }
  return "it computes " + percent(computes) + " of its own time: it has more to do than the others, or a slower CPU";
}

// A window has at least so many steps of each rank, and so many intervals.
constexpr std::uint64_t kWindowSteps = 50;
constexpr std::size_t kWindowIntervals = 8;
// A rank is reported once it was the straggler in so many windows in a row. The number is larger for waits for a CPU,
// because they may be caused by other programs for a short time.
constexpr int kWindows = 2;
constexpr int kWindowsForCpuWaits = 4;
constexpr int kQuietWindows = 2;

double excess_of(const std::vector<StepInterval>& window, int rank) {
  const StepInterval all = sum_of(window);
  std::vector<double> own;
  double its = 0;
  for (const RankShare& share : all) {
    own.push_back(share.own_per_step());
    if (share.rank == rank) its = share.own_per_step();
  }
  const double median = low_median(std::move(own));
  return median > 0 ? its / median - 1 : 0;
}

double seconds_of(const std::vector<StepInterval>& window) {
  double longest = 0;
  for (const RankShare& share : sum_of(window)) longest = std::max(longest, share.time / 1e6);
  return longest;
}

}  // namespace

std::vector<Straggler> find_stragglers(const std::vector<StepInterval>& intervals, double threshold) {
  std::vector<Straggler> found;
  const StepInterval all = sum_of(intervals);
  if (all.size() < 2) return found;
  for (const RankShare& share : all) {
    if (auto straggler = straggler_of(share, all, intervals, threshold)) found.push_back(std::move(*straggler));
  }
  return found;
}

std::string to_text(const Straggler& straggler) {
  const std::string phase = straggler.phase == "between phases" ? straggler.phase : "in " + straggler.phase;
  std::string text = "rank " + std::to_string(straggler.rank) +
                     (straggler.host.empty() ? "" : " (" + straggler.host + ")") + " delays the others " + phase +
                     ": its own time is " + std::to_string(std::lround(straggler.excess * 100)) +
                     " % above the median, " + short_time_text(straggler.own_us) + " instead of " +
                     short_time_text(straggler.median_us) + " a step";
  if (!straggler.reason.empty()) text += "; " + straggler.reason;
  return text;
}

std::string reason_of(const RankShare& slow, const StepInterval& all) {
  const Value throttled = share_of_time(&DelayCounters::throttled_us);
  if (above_median(slow, all, throttled) > kThrottled) {
    return "its cgroup throttles it: for " + percent(throttled(slow)) + " of the time its CPU time was used up";
  }
  if (std::string text = reason_of_disk(slow, all); !text.empty()) return text;
  const int cpus = static_cast<int>(median_of(all, [](const RankShare& each) { return each.delays.cpus; }));
  const std::string fewer = slow.delays.cpus > 0 && slow.delays.cpus < cpus
                                ? "it may use " + std::to_string(slow.delays.cpus) + " CPU" +
                                      (slow.delays.cpus > 1 ? "s" : "") + ", the others " + std::to_string(cpus)
                                : "";
  const Value delayed = share_of_time(&DelayCounters::run_delay_us);
  if (above_median(slow, all, delayed) > kMinCpuWaitShare) {
    return "it is runnable but has no CPU " + percent(delayed(slow)) + " of the time: other processes run on its CPUs" +
           (fewer.empty() ? "" : " (" + fewer + ")");
  }
  if (!fewer.empty()) return fewer;
  std::string text = reason_of_gpu(slow, all);
  return text.empty() ? describe_own_time(slow) : text;
}

bool StragglerTracker::is_window_complete() const {
  if (window_.size() < kWindowIntervals) return false;
  const StepInterval all = sum_of(window_);
  return std::all_of(all.begin(), all.end(), [](const RankShare& share) { return share.steps >= kWindowSteps; });
}

std::vector<StragglerChange> StragglerTracker::add(StepInterval interval) {
  std::vector<StragglerChange> changes;
  // If the set of ranks has changed, the intervals cannot be compared.
  const auto is_other = [&](const StepInterval& before) {
    return !std::equal(before.begin(), before.end(), interval.begin(), interval.end(),
                       [](const RankShare& a, const RankShare& b) { return a.rank == b.rank; });
  };
  if (!window_.empty() && is_other(window_.front())) window_.clear();
  window_.push_back(std::move(interval));
  if (!is_window_complete()) return changes;
  evaluate_window(changes);
  check_end(changes);
  window_.clear();
  return changes;
}

void StragglerTracker::evaluate_window(std::vector<StragglerChange>& changes) {
  const auto found = find_stragglers(window_, threshold_);
  std::erase_if(suspicions_, [&](const auto& each) {
    return std::none_of(found.begin(), found.end(), [&](const auto& one) { return one.rank == each.first; });
  });
  for (const Straggler& straggler : found) {
    if (named_.contains(straggler.rank)) continue;
    Suspicion& suspicion = suspicions_[straggler.rank];
    ++suspicion.windows;
    suspicion.windows_with_cpu = straggler.due_to_cpu_waits ? 0 : suspicion.windows_with_cpu + 1;
    suspicion.intervals.insert(suspicion.intervals.end(), window_.begin(), window_.end());
    if (suspicion.windows_with_cpu < kWindows && suspicion.windows < kWindowsForCpuWaits) continue;
    // The phase and the excess are computed from all windows, which is more precise than the last one alone.
    Straggler named = straggler;
    for (Straggler& of_all : find_stragglers(suspicion.intervals, threshold_ / 2)) {
      if (of_all.rank == straggler.rank) named = std::move(of_all);
    }
    changes.push_back({named});
    named_.emplace(straggler.rank, Named{std::move(named)});
  }
}

void StragglerTracker::check_end(std::vector<StragglerChange>& changes) {
  const double seconds = seconds_of(window_);
  for (auto named = named_.begin(); named != named_.end();) {
    named->second.seconds += seconds;
    const bool is_quiet = excess_of(window_, named->first) < threshold_ / 2;
    named->second.quiet_windows = is_quiet ? named->second.quiet_windows + 1 : 0;
    if (named->second.quiet_windows < kQuietWindows) {
      ++named;
      continue;
    }
    changes.push_back({named->second.straggler, true, named->second.seconds - kQuietWindows * seconds});
    named = named_.erase(named);
  }
}

}  // namespace launcher

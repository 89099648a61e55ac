// The work of all ranks between two moments at which each of them had ended a step. It consists of sums, from which the
// means of a step are computed. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/progress/page_reader.h"
#include "launcher/os/machine/gpu_monitor.h"

namespace launcher {

// What kernel and GPU driver report about possible delays of a rank. All members but the number of CPUs are sums since
// the process began.
struct DelayCounters {
  std::uint64_t on_cpu_us = 0;          // time that its busiest thread ran; 0 if the kernel does not count it
  std::uint64_t run_delay_us = 0;       // time that this thread was ready to run, but had no CPU
  std::uint64_t throttled_us = 0;       // time for which its cgroup was throttled
  std::uint64_t major_faults = 0;       // pages that had to be read from swap or from a file
  std::uint64_t disk_us = 0;            // time that it waited for a disk; 0 if the kernel does not count it
  std::uint64_t disk_sample_count = 0;  // how many samples found it waiting for a disk
  std::uint64_t sample_count = 0;       // the number of samples
  int cpus = 0;                         // the number of CPUs that it may use; 0: not known
};

struct RankSample {
  int rank = 0;
  std::string host{};
  ddp::detail::StepTotals totals{};
  DelayCounters delays{};
  std::optional<GpuState> gpu{};
};

// One rank's share of an interval, or of several. Times are in microseconds.
struct RankShare {
  int rank = 0;
  std::string host{};
  std::uint64_t steps = 0;
  double time = 0;
  double waited = 0;                                       // time that it waited for other ranks
  std::array<double, ddp::detail::kPhaseKinds> phases{};   // its own time, without waits
  std::map<std::string, double> named{};                   // its own time in the program's own phases, by name
  std::array<double, ddp::detail::kPhaseKinds> waiting{};  // waits, by the phase in which they happened
  DelayCounters delays{};  // the differences in the interval; `cpus` is the present number
  std::optional<GpuState> gpu{};

  double own_time() const { return time - waited; }
  double own_per_step() const { return steps > 0 ? own_time() / static_cast<double>(steps) : 0; }
  double waited_per_step() const { return steps > 0 ? waited / static_cast<double>(steps) : 0; }
  double phase_per_step(std::size_t kind) const { return steps > 0 ? phases[kind] / static_cast<double>(steps) : 0; }
  double named_per_step(const std::string& name) const {
    const auto found = named.find(name);
    return found != named.end() && steps > 0 ? found->second / static_cast<double>(steps) : 0;
  }
  // The time in those phases of the program that are not kept by name.
  double unnamed() const;
  double unnamed_per_step() const { return steps > 0 ? unnamed() / static_cast<double>(steps) : 0; }
  void add(const RankShare& later);
};

using StepInterval = std::vector<RankShare>;  // by rank

StepInterval sum_of(const std::vector<StepInterval>& intervals);

// Returns the median. For an even number of values it is the lower one of the middle two, so for two ranks it is the
// faster rank's. Returns 0 for no values.
double low_median(std::vector<double> values);
// Returns the median of `value` over all ranks.
double median_of(const StepInterval& interval, const std::function<double(const RankShare&)>& value);

// Makes intervals from the steps and times that ranks report.
class StepIntervalBuilder {
 public:
  // `samples` are the present ones of all ranks. Returns an interval once each rank that takes part has ended a step
  // since the last interval.
  std::optional<StepInterval> add(const std::vector<RankSample>& samples);

 private:
  struct Track {
    RankSample at_begin{};
    int looks_without_step = 0;  // how many times in a row the others had ended a step and this rank had not
  };
  bool is_interval_complete(const std::vector<RankSample>& samples);

  std::map<int, Track> tracks_;
};

}  // namespace launcher

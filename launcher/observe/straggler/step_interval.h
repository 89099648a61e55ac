// What all ranks did between two moments at which all of them had ended a step: sums, of which a step's means are made.
// Pure.
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

// What a rank had done when it was looked at, and what the kernel and the driver know of what may hold it up.
// All but the number of CPUs since the process began.
struct DelayCounters {
  std::uint64_t on_cpu_us = 0;     // its busiest thread of the moment ran; 0 where the kernel does not count
  std::uint64_t run_delay_us = 0;  // that thread was ready to run, and had no CPU
  std::uint64_t throttled_us = 0;  // its cgroup had used up its CPU time
  std::uint64_t major_faults = 0;  // pages that had to be read from swap or from a file
  std::uint64_t disk_us = 0;       // it waited for a disk; 0 where the kernel does not count
  std::uint64_t disk_looks = 0;    // times that it was seen waiting for a disk,
  std::uint64_t looks = 0;         // of so many
  int cpus = 0;                    // that it may use; 0: not known
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
  double waited = 0;                                       // for other ranks
  std::array<double, ddp::detail::kPhaseKinds> phases{};   // own time, without waiting
  std::map<std::string, double> named{};                   // of the program's own phases: by name
  std::array<double, ddp::detail::kPhaseKinds> waiting{};  // by the phase in which it waited
  DelayCounters delays{};                                  // what was added; `cpus` as they are now
  std::optional<GpuState> gpu{};

  double own_time() const { return time - waited; }
  double own_per_step() const { return steps > 0 ? own_time() / static_cast<double>(steps) : 0; }
  double waited_per_step() const { return steps > 0 ? waited / static_cast<double>(steps) : 0; }
  double phase_per_step(std::size_t kind) const { return steps > 0 ? phases[kind] / static_cast<double>(steps) : 0; }
  double named_per_step(const std::string& name) const {
    const auto found = named.find(name);
    return found != named.end() && steps > 0 ? found->second / static_cast<double>(steps) : 0;
  }
  // In phases of the program's own beyond those that are kept by name.
  double unnamed() const;
  double unnamed_per_step() const { return steps > 0 ? unnamed() / static_cast<double>(steps) : 0; }
  void add(const RankShare& later);
};

using StepInterval = std::vector<RankShare>;  // by rank

StepInterval sum_of(const std::vector<StepInterval>& intervals);

// The middle one; of an even number of values the lower one of the two, so that of two ranks it is the faster one's.
// 0 of none.
double low_median(std::vector<double> values);
// Of what `value` says of each rank.
double median_of(const StepInterval& interval, const std::function<double(const RankShare&)>& value);

// Makes intervals of the steps and times that ranks report.
class StepIntervalBuilder {
 public:
  // The ranks as they are now. An interval once each of those that take part has ended a step since the last one.
  std::optional<StepInterval> add(const std::vector<RankSample>& samples);

 private:
  struct Track {
    RankSample at_begin{};
    int looks_without_step = 0;  // so often others had continued and it had not
  };
  bool is_over(const std::vector<RankSample>& samples);

  std::map<int, Track> tracks_;
};

}  // namespace launcher

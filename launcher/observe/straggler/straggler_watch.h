// Watches the steps of the ranks while a job runs. Reports the rank that delays the others, and at the end how the time
// was spent.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launcher/observe/straggler/kernel_figures.h"
#include "launcher/observe/straggler/step_interval.h"
#include "launcher/observe/straggler/straggler.h"
#include "launcher/observe/watch/watched_rank.h"
#include "launcher/os/system/event_loop.h"

namespace launcher {

class Efficiency {
 public:
  void add(const StepInterval& interval);
  // Returns a text such as "efficiency 83 %: ..."; "" for a job that was too short, or that has one rank.
  std::string text() const;

 private:
  std::vector<StepInterval> intervals_;  // at most one: the sum of all
  double lost_ = 0;                      // microseconds per rank that were lost to the slowest rank of each interval
  std::map<int, double> lost_time_by_rank_;  // lost time by the rank that caused it
};

struct StragglerWatchOptions {
  double threshold = 0.1;        // 0: ranks are not watched
  bool finds_stragglers = true;  // false: node 0 finds the stragglers
  std::string host{};
  WatchedRanks ranks{};
  std::function<std::optional<GpuState>(int rank)> gpu_of{};
  // `others` returns the last samples that other nodes have sent. `on_samples` receives this node's samples, to send
  // them on. Both may be null.
  std::function<std::vector<RankSample>()> others{};
  std::function<void(const std::vector<RankSample>&)> on_samples{};
  std::function<void(const StragglerChange&)> on_change{};
};

// The own time and the waits of a rank in its last steps.
struct StepTimes {
  double own_seconds = 0;
  double waited_seconds = 0;
};

class StragglerWatch {
 public:
  // `loop` must outlive this.
  StragglerWatch(EventLoop& loop, StragglerWatchOptions options);

  // The mean times of a recent step of this rank; nothing before its first interval.
  std::optional<StepTimes> step_times(int rank) const;
  // The rank that delays the others, if it is this one; else null.
  const Straggler* straggler(int rank) const;
  // Takes the last samples, of ranks that have ended. Returns how the time of all was spent; "" for a short job.
  std::string finish(const std::vector<WatchedRank>& ranks);

 private:
  void sample_ranks();
  void take(const std::vector<WatchedRank>& ranks);
  std::vector<RankSample> samples_of(const std::vector<WatchedRank>& ranks);

  EventLoop& loop_;
  StragglerWatchOptions options_;
  KernelFigures kernel_;
  StepIntervalBuilder builder_;
  StragglerTracker tracker_;
  Efficiency efficiency_;
  std::map<int, StepTimes> times_;
  std::map<int, Straggler> named_;
  EventLoop::Timer timer_{loop_};
};

}  // namespace launcher

// Watches the ranks' steps while a job runs: says which rank delays the others, and in the end where the time went.
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
  // "efficiency 83 %: ..."; "" for a job too short to say anything, or of one rank.
  std::string text() const;

 private:
  std::vector<StepInterval> intervals_;  // at most one: the sum
  double lost_ = 0;                      // microseconds of each rank, to the slowest of the moment
  std::map<int, double> blame_;          // the same, by rank
};

struct StragglerWatchOptions {
  double threshold = 0.1;  // 0: ranks are not watched
  bool judges = true;      // else node 0 does
  std::string host{};
  WatchedRanks ranks{};
  std::function<std::optional<GpuState>(int rank)> gpu_of{};
  // The last samples that other nodes have sent; and this node's samples, to be sent to them. May be null.
  std::function<std::vector<RankSample>()> others{};
  std::function<void(const std::vector<RankSample>&)> on_samples{};
  std::function<void(const StragglerChange&)> on_change{};
};

// Own and waited time of a rank over its last steps.
struct StepTimes {
  double own_seconds = 0;
  double waited_seconds = 0;
};

class StragglerWatch {
 public:
  // `loop` must outlive this.
  StragglerWatch(EventLoop& loop, StragglerWatchOptions options);

  // Of a step of this rank lately; nothing before there were any.
  std::optional<StepTimes> step_times(int rank) const;
  // Of the rank that delays the others, if one does and is this one.
  const Straggler* straggler(int rank) const;
  // The last look, at ranks that have ended; where the time of all went: "" for a short job.
  std::string finish(const std::vector<WatchedRank>& ranks);

 private:
  void look();
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

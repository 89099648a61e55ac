// Finds the rank for which the others wait, and the phase in which it is slow. Pure.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "launcher/observe/straggler/step_interval.h"

namespace launcher {

struct Straggler {
  int rank = 0;
  std::string host{};
  std::string phase{};            // "data"
  double excess = 0;              // how far its own time is above the median of all, as a share of the median: 0.2
  double own_us = 0;              // own time per step
  double median_us = 0;           // the median of this time over all ranks
  std::string reason{};           // "" when it is not known
  bool due_to_cpu_waits = false;  // true if the rank would not be slow without its waits for a CPU
};

// Returns the ranks whose own time is above the median of all by more than `threshold` (0.1). This must be true of the
// median of the intervals and of their sum, and half of it in most intervals. Other ranks must have waited for them.
std::vector<Straggler> find_stragglers(const std::vector<StepInterval>& intervals, double threshold);

// Why the own time of `slow` is above that of `all`, as far as kernel and driver report it; "" when it is not known.
std::string reason_of(const RankShare& slow, const StepInterval& all);

// "rank 3 delays the others: ..."
std::string to_text(const Straggler& straggler);

// Reports when a rank begins to delay the others, and when it no longer does.
struct StragglerChange {
  Straggler straggler{};
  bool is_over = false;
  double seconds = 0;  // at the end: for how long it has delayed the others
};

class StragglerTracker {
 public:
  // `threshold`: 0.1 is 10 %.
  explicit StragglerTracker(double threshold) : threshold_(threshold) {}

  // Returns the changes to report after this interval.
  std::vector<StragglerChange> add(StepInterval interval);

 private:
  struct Suspicion {
    int windows = 0;                        // windows in a row in which it was the straggler
    int windows_with_cpu = 0;               // those in which its waits for a CPU were not the cause
    std::vector<StepInterval> intervals{};  // the intervals of all these windows
  };
  bool is_window_complete() const;
  void evaluate_window(std::vector<StragglerChange>& changes);
  void check_end(std::vector<StragglerChange>& changes);

  const double threshold_;
  std::vector<StepInterval> window_;
  std::map<int, Suspicion> suspicions_;
  struct Named {
    Straggler straggler{};
    double seconds = 0;
    int quiet_windows = 0;
  };
  std::map<int, Named> named_;
};

}  // namespace launcher

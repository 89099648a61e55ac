// Which rank makes the others wait, and where. Pure.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "launcher/observe/straggler/step_interval.h"

namespace launcher {

struct Straggler {
  int rank = 0;
  std::string host{};
  std::string phase{};           // "data"
  double excess = 0;             // of its own time above the median of all, as a share of that: 0.2
  double own_us = 0;             // a step
  double median_us = 0;          // the same of all ranks
  std::string reason{};          // "" when it is not known
  bool for_want_of_cpu = false;  // without its waits for a CPU it would be like the others
};

// The ranks whose own time in some intervals of training is above the median of all by more than `threshold` (0.1): in
// the median of the intervals, in all of them together, and by half of it in most of them; and for which others have
// waited.
std::vector<Straggler> find_stragglers(const std::vector<StepInterval>& intervals, double threshold);

// Why the own time of `slow` is above that of `all`, as far as kernel and driver know: "" when they do not.
std::string reason_of(const RankShare& slow, const StepInterval& all);

// "rank 3 delays the others: ..."
std::string to_text(const Straggler& straggler);

// Follows a job's training and says when a rank begins to delay the others, and when it does so no more.
struct StragglerChange {
  Straggler straggler{};
  bool is_over = false;
  double seconds = 0;  // when it has ended: how long it has delayed the others
};

class StragglerTracker {
 public:
  // `threshold`: 0.1 is 10 %.
  explicit StragglerTracker(double threshold) : threshold_(threshold) {}

  // What has to be reported after this interval.
  std::vector<StragglerChange> add(StepInterval interval);

 private:
  struct Suspicion {
    int windows = 0;                        // in which it was the straggler
    int windows_with_cpu = 0;               // and would have been it without its waits for a CPU
    std::vector<StepInterval> intervals{};  // of all of them
  };
  bool is_window() const;
  void judge_window(std::vector<StragglerChange>& changes);
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

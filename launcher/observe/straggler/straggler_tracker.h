// Follows a job's training and says when a rank begins to hold up the others, and when it does so no more. Pure.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "launcher/observe/straggler/slice.h"
#include "launcher/observe/straggler/straggler.h"

namespace launcher {

struct StragglerNews {
  Straggler straggler{};
  bool is_over = false;
  double seconds = 0;  // when it is over: for so long it has held up the others
};

class StragglerTracker {
 public:
  // `threshold`: 0.1 is 10 %.
  explicit StragglerTracker(double threshold) : threshold_(threshold) {}

  // What there is to say behind this slice.
  std::vector<StragglerNews> add(Slice slice);

 private:
  // Windows in a row.
  struct Suspicion {
    int windows = 0;              // in which it was the straggler
    int windows_with_cpu = 0;     // and would have been it without its waits for a CPU
    std::vector<Slice> slices{};  // of all of them
  };
  bool is_window() const;
  void judge_window(std::vector<StragglerNews>& news);
  void look_whether_over(std::vector<StragglerNews>& news);

  const double threshold_;
  std::vector<Slice> window_;
  std::map<int, Suspicion> suspicions_;
  struct Named {
    Straggler straggler{};
    double seconds = 0;
    int quiet_windows = 0;
  };
  std::map<int, Named> named_;
};

}  // namespace launcher

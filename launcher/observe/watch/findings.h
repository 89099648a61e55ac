// The findings on a job: the present hang, and the last ranks that delayed the others. Status, metrics, events and
// --on_hang_command read them here. Pure.
#pragma once

#include <chrono>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "launcher/observe/watch/hang_report.h"

namespace launcher {

using WallTime = std::chrono::system_clock::time_point;

struct Hang {
  Verdict verdict{};
  WallTime since{};     // when a rank last made progress
  WallTime reported{};  // the time at which the durations in the sentence of the verdict were computed
};

struct Delay {
  int rank = 0;
  std::string sentence{};
  WallTime begin{};
  std::optional<WallTime> end{};  // nothing while it continues
};

class Findings {
 public:
  static constexpr std::size_t kMaxDelays = 8;

  const Hang& begin_hang(const HangReport& report, WallTime now);
  void clear_hang() { hang_.reset(); }
  void begin_delay(int rank, std::string sentence, WallTime now);
  void end_delay(int rank, WallTime now);
  // Ends the findings that still continue, as the ranks have ended.
  void end_attempt(WallTime now);

  const std::optional<Hang>& hang() const { return hang_; }
  // At most kMaxDelays, the latest first.
  const std::deque<Delay>& delays() const { return delays_; }

 private:
  std::optional<Hang> hang_;
  std::deque<Delay> delays_;
};

// "missing", "stopped", "cycle": the kind in JSON and events.
const char* name_of(Verdict::Kind kind);

}  // namespace launcher

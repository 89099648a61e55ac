// Samples per second, of one rank and of the whole job.
#pragma once

#include <chrono>
#include <cstdint>

#include <ddprun/comm/process_group.h>

namespace ddp {

/// Counts from its construction or the last reset() on.
class Throughput {
 public:
  void update(int64_t samples) { samples_ += samples; }

  /// This rank's samples per second until now.
  double per_second() const;

  /// All ranks' samples over the longest time that a rank took. Every rank must call it.
  double compute(const GroupHandle& group) const;

  void reset();

 private:
  using Clock = std::chrono::steady_clock;

  double seconds() const;

  int64_t samples_ = 0;
  Clock::time_point start_ = Clock::now();
};

}  // namespace ddp

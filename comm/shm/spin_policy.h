// Internal: how long a rank looks for what it waits for before it sleeps. No LibTorch.
#pragma once

#include <chrono>
#include <cstdint>

namespace ddp::shm {

/// Whether `ranks` ranks of this host are more than the processors that they may run on. Ranks that are bound to one
/// each do not show it; then it is measured while they run (SlotAccess::shares_processor_with()).
bool must_share_processors(int ranks);

/// Where each rank has a processor, looking beats sleeping for as long as waits have recently been short; where ranks
/// share them, the others run first, as long as this one soon runs again.
class SpinPolicy {
 public:
  /// How long a wait looks at least and at most.
  struct Range {
    std::chrono::nanoseconds least;
    std::chrono::nanoseconds most;
  };
  /// For a thread that has nothing else to do: longer than a sleeping one takes to wake up on a busy machine. Two
  /// ranks that each stop spinning before the other one is awake would do so at every step.
  static constexpr Range kIdle{std::chrono::microseconds(10), std::chrono::microseconds(200)};
  /// For a thread that runs beside a computing one.
  static constexpr Range kBusy{std::chrono::microseconds(2), std::chrono::microseconds(20)};

  /// `shares_processors`: more ranks than processors, see must_share_processors().
  SpinPolicy(bool shares_processors, const Range& range)
      : shares_processors_(shares_processors), range_(range), limit_(range.most) {}

  bool shares_processors() const { return shares_processors_; }

  /// A wait begins.
  void begin() {
    spins_ = 0;
    since_ = {};
  }
  /// Spins once or yields; false when it is time to sleep, or if `is_futile`, which is called sometimes, returns true.
  template <typename Check>
  bool keep_spinning(const Check& is_futile) {
    if (!spin_once()) return false;
    return shares_processors_ || spins_ % kSpinsPerClockRead != 0 || !is_futile();
  }
  /// What was waited for did not come while looking, and this rank has slept: the next wait looks longer where that
  /// would have been enough, else shorter.
  void slept();

 private:
  using Clock = std::chrono::steady_clock;
  bool spin_once();
  bool yield_processor();

  static constexpr uint32_t kSpinsPerClockRead = 32;

  const bool shares_processors_;
  const Range range_;
  std::chrono::nanoseconds limit_;
  uint32_t spins_ = 0;
  uint32_t waits_without_yield_ = 0;  // waits in which this rank does not yield, since that has taken long
  Clock::time_point since_{};
};

}  // namespace ddp::shm

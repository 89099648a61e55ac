// Internal: how long a rank looks for what it waits for before it sleeps. No LibTorch.
#pragma once

#include <chrono>
#include <cstdint>

namespace ddp::shm {

/// Processors that this process may run on.
int usable_processors();

/// Where each rank has a processor, looking beats sleeping for as long as waits have recently been short; where ranks
/// share them, the others are let go first, as long as that brings this one back soon.
class Patience {
 public:
  /// `shares_processors`: there are more ranks than usable_processors().
  explicit Patience(bool shares_processors) : shares_processors_(shares_processors) {}

  /// A wait begins.
  void begin() {
    looks_ = 0;
    since_ = {};
  }
  /// Passes a moment; false when it is time to sleep.
  bool look_again();
  /// What was waited for came while looking.
  void succeeded();
  /// It did not.
  void failed();

 private:
  using Clock = std::chrono::steady_clock;
  bool let_others_go();

  const bool shares_processors_;
  std::chrono::nanoseconds limit_{kMost};
  uint32_t looks_ = 0;
  uint32_t refrains_ = 0;  // waits in which others are not let go, since that has taken long
  Clock::time_point since_{};

  static constexpr std::chrono::nanoseconds kMost = std::chrono::microseconds(50);
  static constexpr std::chrono::nanoseconds kLeast = std::chrono::microseconds(2);
};

}  // namespace ddp::shm

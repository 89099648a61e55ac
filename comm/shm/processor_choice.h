// Internal: brings a rank away from the processor of a rank that it waits for. Linux likes to wake a sleeper where its
// waker runs; two ranks that wait for each other in turn then stay there, and each sleeps while the other one runs,
// though a processor beside them is idle. No LibTorch.
#pragma once

#include <chrono>
#include <vector>

namespace ddp::shm {

/// When a move is worth its price, which is some microseconds. Where something else wants the other processors, ranks
/// come back soon; then it is tried more and more seldom.
class MovePause {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// The rank is on a processor with one that it waits for: whether it shall move.
  bool is_over(Time now);
  void moved(Time now);

 private:
  static constexpr std::chrono::milliseconds kGoodStay{10};
  static constexpr std::chrono::milliseconds kLeast{1};
  static constexpr std::chrono::milliseconds kMost{1000};

  bool has_moved_ = false;  // and has not come back since
  Time moved_at_{};
  Time not_before_{};
  std::chrono::milliseconds pause_ = kLeast;
};

/// The processor of the calling thread, counted from 0.
int current_processor();

/// Moves the calling thread to another processor of those that it may run on; it may run on the same ones afterwards.
/// `preferred`: where it was before; `occupied`: where ranks are. False where there is no other.
bool leave_processor(int preferred, const std::vector<int>& occupied);

}  // namespace ddp::shm

// Internal: brings a rank away from the processor of a rank that it waits for. Linux likes to wake a sleeper where its
// waker runs; two ranks that wait for each other in turn then stay there, and each sleeps while the other one runs,
// though a processor beside them is idle. No LibTorch.
#pragma once

#include <chrono>
#include <vector>

namespace ddp::shm {

/// Decides when to move to another processor, which costs some microseconds. If other programs use the other
/// processors, ranks soon return to the same one; moves are then tried less and less often.
class MovePause {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// Call it when this rank shares its processor with a rank for which it waits. Returns whether it should move.
  bool may_move(Time now);
  void moved(Time now);

 private:
  static constexpr std::chrono::milliseconds kMinUsefulStay{10};
  static constexpr std::chrono::milliseconds kMinPause{1};
  static constexpr std::chrono::milliseconds kMaxPause{1000};

  bool has_moved_ = false;  // and has not returned since
  Time moved_at_{};
  Time not_before_{};
  std::chrono::milliseconds pause_ = kMinPause;
};

/// The processor of the calling thread, counted from 0.
int current_processor();

/// Moves the calling thread to another processor of its affinity mask, and restores the mask afterwards. `preferred`:
/// its previous processor; `occupied`: the processors of ranks. Returns false if there is no other processor.
bool move_to_other_processor(int preferred, const std::vector<int>& occupied);

}  // namespace ddp::shm

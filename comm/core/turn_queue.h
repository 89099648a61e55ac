// Gives a resource to one thread at a time, in the order in which the threads ask. Does not use LibTorch.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>

namespace ddp::detail {

/// A lock with a queue: unlike std::timed_mutex it is fair, and its holder can see that other threads want it.
class TurnQueue {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  /// Throws std::system_error when the process has no descriptor left.
  TurnQueue();
  ~TurnQueue();
  TurnQueue(const TurnQueue&) = delete;
  TurnQueue& operator=(const TurnQueue&) = delete;

  /// Waits for the turn; false when `deadline` expires first. The thread that gets it calls give_back().
  bool take(TimePoint deadline);
  void give_back() noexcept;

  /// For poll(): readable while a thread waits for the turn.
  int wanted_fd() const { return wanted_fd_; }

 private:
  void show_wanted(bool is_wanted) const noexcept;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<uint64_t> waiting_;  // tickets
  uint64_t next_ticket_ = 0;
  bool is_taken_ = false;
  int wanted_fd_ = -1;
};

}  // namespace ddp::detail

// Gives a resource to one thread at a time, in the order in which the threads ask. Does not use LibTorch.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>

namespace ddp::detail {

/// A lock with a queue: unlike std::timed_mutex it is fair, and its holder can see that other threads want it.
class FairLock {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  /// Throws std::system_error when the process has no descriptor left.
  FairLock();
  ~FairLock();
  FairLock(const FairLock&) = delete;
  FairLock& operator=(const FairLock&) = delete;

  /// Waits for the lock; false when `deadline` expires first. The thread that gets it calls unlock().
  bool try_lock_until(TimePoint deadline);
  void unlock() noexcept;

  /// For poll(): readable while a thread waits for the lock.
  int waiters_fd() const { return waiters_fd_; }

 private:
  void set_waiters_fd(bool has_waiters) const noexcept;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<uint64_t> waiting_;  // tickets
  uint64_t next_ticket_ = 0;
  bool is_locked_ = false;
  int waiters_fd_ = -1;
};

}  // namespace ddp::detail

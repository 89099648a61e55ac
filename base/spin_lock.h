// Internal: a lock for critical sections of a few nanoseconds. Locking and unlocking costs one atomic read-modify-write
// instruction; std::mutex needs two, and two function calls. A thread that waits longer sleeps briefly, so that the
// owner can run whatever its priority is.
#pragma once

#include <atomic>
#include <chrono>
#include <thread>

namespace ddp::detail {

class SpinLock {
 public:
  SpinLock() = default;
  SpinLock(const SpinLock&) = delete;
  SpinLock& operator=(const SpinLock&) = delete;

  bool try_lock() noexcept { return !is_taken_.exchange(true, std::memory_order_acquire); }
  void lock() noexcept {
    if (!try_lock()) lock_taken();
  }
  void unlock() noexcept { is_taken_.store(false, std::memory_order_release); }

 private:
  [[gnu::noinline]] void lock_taken() noexcept {
    constexpr int kMaxSpins = 100;
    constexpr auto kSleepTime = std::chrono::microseconds(20);
    for (int look = 0;; ++look) {
      if (!is_taken_.load(std::memory_order_relaxed) && try_lock()) return;
      if (look >= kMaxSpins) std::this_thread::sleep_for(kSleepTime);
    }
  }

  std::atomic<bool> is_taken_{false};
};

}  // namespace ddp::detail

#include "comm/shm/spin_policy.h"

#include <sched.h>

#include <algorithm>

namespace ddp::shm {
namespace {

void cpu_relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

bool must_share_processors(int ranks) {
  cpu_set_t usable;
  CPU_ZERO(&usable);
  if (sched_getaffinity(0, sizeof usable, &usable) != 0) return false;
  const int processors = CPU_COUNT(&usable);
  return processors > 1 && ranks > processors;
}

bool SpinPolicy::spin_once() {
  if (shares_processors_) return yield_processor();
  ++spins_;
  if (spins_ > kSpinsPerClockRead) cpu_relax();  // what comes at once is seen at once
  if (spins_ % kSpinsPerClockRead != 0) return true;
  const auto now = Clock::now();
  if (spins_ == kSpinsPerClockRead) since_ = now;
  return now - since_ < limit_;
}

// A process that runs for a whole slice of time, because something else than ranks uses the processors, comes back
// late: a sleeper is woken sooner.
bool SpinPolicy::yield_processor() {
  constexpr uint32_t kMaxYields = 8;
  constexpr uint32_t kWaitsWithoutYield = 32;
  constexpr auto kMaxYieldTime = std::chrono::microseconds(100);
  if (waits_without_yield_ > 0) {
    --waits_without_yield_;
    return false;
  }
  if (spins_++ >= kMaxYields) return false;
  const auto before = Clock::now();
  sched_yield();
  if (Clock::now() - before > kMaxYieldTime) waits_without_yield_ = kWaitsWithoutYield;
  return true;
}

void SpinPolicy::slept() {
  if (shares_processors_) return;
  const bool was_short = Clock::now() - since_ < range_.most;
  limit_ = was_short ? std::min(range_.most, limit_ * 2) : std::max(range_.least, limit_ / 2);
}

}  // namespace ddp::shm

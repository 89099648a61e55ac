#include "comm/shm/futex_sleep.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace ddp::shm {
namespace {

// Not private to a process: ranks map the same memory at places of their own.
long futex(std::atomic<uint32_t>& word, int operation, uint32_t value, const timespec* limit) {
  return syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), operation, value, limit, nullptr, 0);
}

void wake_sleeper(RankBlock& sleeper) {
  sleeper.wake_count.fetch_add(1);
  futex(sleeper.wake_count, FUTEX_WAKE, INT_MAX, nullptr);
}

}  // namespace

void wake(RankBlock& sleeper, WaitCondition condition) {
  const uint32_t waited_for = sleeper.sleeping.load();
  if (waited_for == condition.code() || waited_for == WaitCondition::any().code()) wake_sleeper(sleeper);
}

void wake_unconditionally(RankBlock& sleeper) {
  if (sleeper.sleeping.load() != 0) wake_sleeper(sleeper);
}

void futex_wait(std::atomic<uint32_t>& wake_count, uint32_t expected, std::chrono::nanoseconds limit) {
  constexpr long kBillion = 1'000'000'000;
  const timespec time{.tv_sec = static_cast<time_t>(limit.count() / kBillion),
                      .tv_nsec = static_cast<long>(limit.count() % kBillion)};
  futex(wake_count, FUTEX_WAIT, expected, &time);
}

}  // namespace ddp::shm

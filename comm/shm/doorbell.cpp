#include "comm/shm/doorbell.h"

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

void ring(RankBlock& sleeper) {
  sleeper.bell.fetch_add(1);
  futex(sleeper.bell, FUTEX_WAKE, INT_MAX, nullptr);
}

}  // namespace

void wake(RankBlock& sleeper, Cause cause) {
  const uint32_t waited_for = sleeper.sleeping.load();
  if (waited_for == cause.code() || waited_for == Cause::any().code()) ring(sleeper);
}

void wake_unconditionally(RankBlock& sleeper) {
  if (sleeper.sleeping.load() != 0) ring(sleeper);
}

void wait_for_bell(std::atomic<uint32_t>& bell, uint32_t heard, std::chrono::nanoseconds limit) {
  constexpr long kBillion = 1'000'000'000;
  const timespec time{.tv_sec = static_cast<time_t>(limit.count() / kBillion),
                      .tv_nsec = static_cast<long>(limit.count() % kBillion)};
  futex(bell, FUTEX_WAIT, heard, &time);
}

}  // namespace ddp::shm

// A lock whose threads get it in the order in which they asked.
#include "comm/core/fair_lock.h"

#include <poll.h>

#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/rank_checks.h"

namespace ddp::detail {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kForHangs = 20s;

// Within `limit`.
bool has_waiters(const FairLock& lock, std::chrono::milliseconds limit = 0ms) {
  pollfd polled{lock.waiters_fd(), POLLIN, 0};
  return ::poll(&polled, 1, static_cast<int>(limit.count())) == 1;
}

TEST_CASE("FairLock: one thread has the lock, and another one gets it after unlock()") {
  FairLock lock;
  REQUIRE(lock.try_lock_until(Clock::now()));
  CHECK_FALSE(has_waiters(lock));
  std::thread other([&] {
    RANK_CHECK(lock.try_lock_until(Clock::now() + kForHangs));
    lock.unlock();
  });
  CHECK(has_waiters(lock, kForHangs));
  lock.unlock();
  other.join();
  CHECK_FALSE(has_waiters(lock));
  REQUIRE(lock.try_lock_until(Clock::now()));
  lock.unlock();
  test::report_rank_checks();
}

TEST_CASE("FairLock: a thread that unlocks and asks again comes after those that wait") {
  FairLock lock;
  constexpr int kTurns = 200;
  int others_turns = 0;  // guarded by the lock
  REQUIRE(lock.try_lock_until(Clock::now()));
  std::thread other([&] {
    for (int turn = 0; turn < kTurns; ++turn) {
      RANK_CHECK(lock.try_lock_until(Clock::now() + kForHangs));
      ++others_turns;
      // Not before this thread is waited for.
      RANK_CHECK((turn == kTurns - 1 || has_waiters(lock, kForHangs)));
      lock.unlock();
    }
  });
  for (int turn = 1; turn <= kTurns; ++turn) {
    REQUIRE(has_waiters(lock, kForHangs));
    lock.unlock();
    REQUIRE(lock.try_lock_until(Clock::now() + kForHangs));
    CHECK(others_turns == turn);
  }
  lock.unlock();
  other.join();
  test::report_rank_checks();
}

TEST_CASE("FairLock: a thread that has waited until the deadline leaves the queue") {
  FairLock lock;
  REQUIRE(lock.try_lock_until(Clock::now()));
  CHECK_FALSE(lock.try_lock_until(Clock::now() + 20ms));
  CHECK_FALSE(lock.try_lock_until(Clock::now() - 1s));
  CHECK_FALSE(has_waiters(lock));
  // One that waits behind another one, which gives up.
  std::thread first([&] { RANK_CHECK_FALSE(lock.try_lock_until(Clock::now() + 100ms)); });
  CHECK(has_waiters(lock, kForHangs));
  std::thread second([&] {
    RANK_CHECK(lock.try_lock_until(Clock::now() + kForHangs));
    lock.unlock();
  });
  first.join();
  lock.unlock();
  second.join();
  CHECK_FALSE(has_waiters(lock));
  test::report_rank_checks();
}

}  // namespace
}  // namespace ddp::detail

// A lock whose threads get it in the order in which they asked.
#include "comm/core/turn_queue.h"

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
bool is_wanted(const TurnQueue& queue, std::chrono::milliseconds limit = 0ms) {
  pollfd polled{queue.wanted_fd(), POLLIN, 0};
  return ::poll(&polled, 1, static_cast<int>(limit.count())) == 1;
}

TEST_CASE("TurnQueue: one thread has the turn, and another one gets it when it is given back") {
  TurnQueue queue;
  REQUIRE(queue.take(Clock::now()));
  CHECK_FALSE(is_wanted(queue));
  std::thread other([&] {
    RANK_CHECK(queue.take(Clock::now() + kForHangs));
    queue.give_back();
  });
  CHECK(is_wanted(queue, kForHangs));
  queue.give_back();
  other.join();
  CHECK_FALSE(is_wanted(queue));
  REQUIRE(queue.take(Clock::now()));
  queue.give_back();
  test::report_rank_checks();
}

TEST_CASE("TurnQueue: a thread that gives the turn back and asks again comes after those that wait") {
  TurnQueue queue;
  constexpr int kTurns = 200;
  int others_turns = 0;  // guarded by the turn
  REQUIRE(queue.take(Clock::now()));
  std::thread other([&] {
    for (int turn = 0; turn < kTurns; ++turn) {
      RANK_CHECK(queue.take(Clock::now() + kForHangs));
      ++others_turns;
      // Not before this thread is waited for.
      RANK_CHECK((turn == kTurns - 1 || is_wanted(queue, kForHangs)));
      queue.give_back();
    }
  });
  for (int turn = 1; turn <= kTurns; ++turn) {
    REQUIRE(is_wanted(queue, kForHangs));
    queue.give_back();
    REQUIRE(queue.take(Clock::now() + kForHangs));
    CHECK(others_turns == turn);
  }
  queue.give_back();
  other.join();
  test::report_rank_checks();
}

TEST_CASE("TurnQueue: a thread that has waited until the deadline leaves the queue") {
  TurnQueue queue;
  REQUIRE(queue.take(Clock::now()));
  CHECK_FALSE(queue.take(Clock::now() + 20ms));
  CHECK_FALSE(queue.take(Clock::now() - 1s));
  CHECK_FALSE(is_wanted(queue));
  // One that waits behind another one, which gives up.
  std::thread first([&] { RANK_CHECK_FALSE(queue.take(Clock::now() + 100ms)); });
  CHECK(is_wanted(queue, kForHangs));
  std::thread second([&] {
    RANK_CHECK(queue.take(Clock::now() + kForHangs));
    queue.give_back();
  });
  first.join();
  queue.give_back();
  second.join();
  CHECK_FALSE(is_wanted(queue));
  test::report_rank_checks();
}

}  // namespace
}  // namespace ddp::detail

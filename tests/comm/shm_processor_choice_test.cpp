// Ranks that wait for each other do not stay on one processor while another one is free.
#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <thread>

#include "comm/shm/processor_choice.h"
#include "tests/comm/shm_ranks.h"
#include "tests/support/catch.h"

namespace ddp::test {
namespace {

using namespace std::chrono_literals;
using shm::MovePause;

cpu_set_t usable_processors() {
  cpu_set_t usable;
  CPU_ZERO(&usable);
  sched_getaffinity(0, sizeof usable, &usable);
  return usable;
}

cpu_set_t only(int processor) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(static_cast<size_t>(processor), &one);
  return one;
}

int processors(const cpu_set_t& set) {
  return CPU_COUNT(&set);
}

TEST_CASE("MovePause: a rank that comes back soon moves more and more seldom") {
  MovePause pause;
  MovePause::Time now = MovePause::Time{} + 1h;
  CHECK(pause.may_move(now));
  int moves = 0;
  for (const auto end = now + 10s; now < end; now += 1ms) {
    if (!pause.may_move(now)) continue;
    pause.moved(now);
    ++moves;
  }
  CHECK(moves >= 10);
  CHECK(moves <= 25);  // 1, 2, 4 ... ms, then once in a second
}

TEST_CASE("MovePause: after a good while away a rank moves at once again") {
  MovePause pause;
  MovePause::Time now = MovePause::Time{} + 1h;
  for (int i = 0; i < 100; ++i) {
    CHECK(pause.may_move(now));
    pause.moved(now);
    now += 20ms;
  }
  // Bad ones, and then one that is good again.
  for (int i = 0; i < 5; ++i) {
    while (!pause.may_move(now)) now += 1ms;
    pause.moved(now);
    now += 1ms;
  }
  CHECK_FALSE(pause.may_move(now));
  while (!pause.may_move(now)) now += 1ms;
  pause.moved(now);
  now += 20ms;
  CHECK(pause.may_move(now));
}

struct Move {
  bool was_bound = true;  // where that was wanted
  bool has_moved = false;
  int from = -1;
  int to = -1;
  cpu_set_t before{};
  cpu_set_t after{};
};

// What is changed is a thread's own.
Move move_in_a_thread(bool is_bound, int preferred, const std::vector<int>& occupied) {
  Move move;
  std::thread([&] {
    move.from = shm::current_processor();
    const cpu_set_t one = only(move.from);
    if (is_bound) move.was_bound = sched_setaffinity(0, sizeof one, &one) == 0;
    sched_getaffinity(0, sizeof move.before, &move.before);
    move.has_moved = shm::move_to_other_processor(preferred, occupied);
    move.to = shm::current_processor();
    sched_getaffinity(0, sizeof move.after, &move.after);
  }).join();
  return move;
}

TEST_CASE("leave_processor: a thread may run on the same processors afterwards") {
  const int all = processors(usable_processors());
  const Move move = move_in_a_thread(/*is_bound=*/false, -1, {});
  CHECK(CPU_EQUAL(&move.before, &move.after));
  CHECK(move.has_moved == (all > 1));
}

TEST_CASE("leave_processor: a thread that is bound to one processor stays") {
  const Move move = move_in_a_thread(/*is_bound=*/true, CPU_SETSIZE + 5, {-1, CPU_SETSIZE + 5});
  CHECK(move.was_bound);
  CHECK_FALSE(move.has_moved);
  CHECK(move.to == move.from);
  CHECK(CPU_EQUAL(&move.before, &move.after));
}

// How many rounds of 21 calls two ranks need that begin on one processor and may run on all; at most `most`. As the
// kernel leaves them after it has woken one where the other ran.
int rounds_until_apart(const cpu_set_t& usable, int most) {
  const cpu_set_t first = only(shm::current_processor());
  std::atomic<int> together{2};
  std::array<std::atomic<int>, 2> seen{-1, -1};
  std::atomic<int> rounds{0};
  run_shm_ranks(2, [&](const ShmRank& self) {
    std::vector<float> value{1.F};
    const auto reduce = [&] { self.run(shm::all_reduce(bytes_of(value), 1, {.op = shm::Operator::kMax}, self.place)); };
    sched_setaffinity(0, sizeof first, &first);
    together.fetch_sub(1);
    while (together.load() > 0) std::this_thread::yield();
    sched_setaffinity(0, sizeof usable, &usable);
    for (bool goes_on = true; goes_on;) {
      for (int i = 0; i < 20; ++i) reduce();
      seen[static_cast<size_t>(self.place.rank)] = shm::current_processor();
      if (self.place.rank == 0) ++rounds;
      // Both stop after the same number of calls.
      const bool are_apart = seen[0] >= 0 && seen[1] >= 0 && seen[0] != seen[1];
      value[0] = are_apart || rounds >= most ? 1.F : 0.F;
      reduce();
      goes_on = value[0] == 0.F;
    }
  });
  return rounds;
}

TEST_CASE("shm: two ranks on one processor come apart long before the kernel moves one of them") {
  const cpu_set_t usable = usable_processors();
  if (processors(usable) < 2) SKIP("this process may use one processor only");
  // Left to the kernel it takes some hundred rounds and more. Where something else runs they may have to come apart
  // twice.
  constexpr int kFew = 30;
  int fewest = kFew + 1;
  for (int attempt = 0; attempt < 10 && fewest > kFew; ++attempt) {
    fewest = std::min(fewest, rounds_until_apart(usable, kFew + 1));
  }
  CHECK(fewest <= kFew);
}

}  // namespace
}  // namespace ddp::test

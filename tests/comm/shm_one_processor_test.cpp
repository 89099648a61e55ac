// Collectives of ranks that spin on one processor, so that each is stopped in the middle of a step, for as long as the
// others can go on without it.
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include "comm/shm/collectives.h"
#include "comm/shm/operation.h"
#include "tests/comm/shm_ranks.h"
#include "tests/support/catch.h"
#include "tests/support/rank_checks.h"

namespace ddp::shm {
namespace {

using test::bytes_of;
using Floats = std::vector<float>;

// Runs `body` on each rank, without an engine, which would yield.
void run_on_one_processor(int ranks, const std::function<void(SlotAccess& slots, Place place)>& body) {
  const Segment segment = Segment::create(ranks);
  cpu_set_t usable;
  REQUIRE(sched_getaffinity(0, sizeof usable, &usable) == 0);
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int processor = 0; CPU_COUNT(&one) == 0; ++processor) {
    if (CPU_ISSET(processor, &usable)) CPU_SET(processor, &one);
  }
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      RANK_CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
      SlotAccess slots(segment, rank);
      body(slots, {.rank = rank, .ranks = ranks});
    });
  }
  for (std::thread& thread : threads) thread.join();
  test::report_rank_checks();
}

TEST_CASE("ShmOneProcessor: a rank that is stopped anywhere in a reduction keeps its rounds apart") {
  // As many rounds as there are slots, and one more, which the ranks divide at another place.
  constexpr size_t kCount = (kSlots * kSlotBytes + 20'000) / sizeof(float);
  constexpr int kTimes = 40;  // one in four met the fault
  const bool is_for_all = GENERATE(false, true);
  const int ranks = is_for_all ? 3 : 2;  // two would sum all by themselves
  CAPTURE(is_for_all);
  std::atomic<int> begun{0};
  run_on_one_processor(ranks, [&](SlotAccess& slots, Place place) {
    const bool is_stopped = place.rank == 0;  // the other one goes on whenever there is something to do
    for (int time = 1; time <= kTimes; ++time) {
      if (is_stopped) begun = time;
      while (begun < time) std::this_thread::yield();
      Floats data(kCount, 1.F);
      const JointPtr operation =
          is_for_all ? all_reduce(bytes_of(data), kCount, {}, place) : reduce(bytes_of(data), kCount, {}, 0, place);
      for (bool moved = false; !operation->advance(slots, moved); moved = false) {
        if (!is_stopped && !moved) std::this_thread::yield();
      }
      const float expected = is_for_all || is_stopped ? static_cast<float>(ranks) : 1.F;
      RANK_CHECK(static_cast<size_t>(std::ranges::count(data, expected)) == kCount);
    }
  });
}

}  // namespace
}  // namespace ddp::shm

// Batches made by threads: order, bounds, exceptions, and every way to end a pass.
#include "data/batch_pipeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <random>
#include <set>
#include <system_error>

namespace ddp {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

class BatchPipelineTest : public testing::TestWithParam<int> {};

TEST_P(BatchPipelineTest, gives_every_batch_in_order_pass_after_pass) {
  BatchPipeline<std::unique_ptr<int64_t>> pipeline(GetParam(), 3);
  for (const int64_t count : {0, 1, 2, 50}) {
    pipeline.start(count, [](int64_t number) { return std::make_unique<int64_t>(10 * number); });
    for (int64_t number = 0; number < count; ++number) EXPECT_EQ(**pipeline.next(), 10 * number);
    for (int i = 0; i < 2; ++i) EXPECT_FALSE(pipeline.next().has_value());
  }
}

TEST_P(BatchPipelineTest, makes_no_more_batches_ahead_than_it_may) {
  constexpr int64_t kPrefetch = 4;
  std::atomic<int64_t> made = 0;
  BatchPipeline<int64_t> pipeline(GetParam(), kPrefetch);
  pipeline.start(100, [&](int64_t number) {
    ++made;
    return number;
  });
  for (int64_t given = 0; given < 100; ++given) {
    EXPECT_LE(made, given + kPrefetch);
    EXPECT_EQ(pipeline.next(), given);
  }
}

TEST_P(BatchPipelineTest, an_exception_comes_in_the_batchs_place_and_ends_the_pass) {
  BatchPipeline<int64_t> pipeline(GetParam(), 3);
  const auto fails_at_5 = [](int64_t number) {
    if (number >= 5) throw std::runtime_error("batch " + std::to_string(number) + " failed");
    return number;
  };
  for (int round = 0; round < 3; ++round) {
    pipeline.start(20, fails_at_5);
    for (int64_t number = 0; number < 5; ++number) EXPECT_EQ(pipeline.next(), number);
    EXPECT_THAT([&] { pipeline.next(); }, ThrowsMessage<std::runtime_error>("batch 5 failed"));
    EXPECT_FALSE(pipeline.next().has_value());
  }
}

TEST_P(BatchPipelineTest, a_pass_may_be_left_in_the_middle_and_another_begun) {
  BatchPipeline<int64_t> pipeline(GetParam(), 5);
  for (int64_t pass = 0; pass < 20; ++pass) {
    pipeline.start(30, [pass](int64_t number) { return 100 * pass + number; });
    for (int64_t number = 0; number < pass; ++number) ASSERT_EQ(pipeline.next(), 100 * pass + number);
  }
  pipeline.stop();
  EXPECT_FALSE(pipeline.next().has_value());
}

/// 50 rounds unless DDPRUN_RACE_ROUNDS says otherwise.
int race_rounds() {
  const char* rounds = std::getenv("DDPRUN_RACE_ROUNDS");
  return rounds == nullptr ? 50 : std::atoi(rounds);
}

TEST_P(BatchPipelineTest, shutdown_and_exceptions_race_with_the_workers) {
  std::mt19937 random(9);
  for (int round = 0; round < race_rounds(); ++round) {
    BatchPipeline<std::vector<int64_t>> pipeline(GetParam(), static_cast<int64_t>(random() % 6 + 1));
    for (uint32_t pass = random() % 3 + 1; pass > 0; --pass) {
      const auto fails_at = static_cast<int64_t>(random() % 40);
      const auto stops_at = static_cast<int64_t>(random() % 40);
      pipeline.start(30, [fails_at](int64_t number) {
        if (number == fails_at) throw std::runtime_error("failed");
        return std::vector<int64_t>(100, number);
      });
      int64_t number = 0;
      try {
        for (; number < stops_at; ++number) {
          const auto batch = pipeline.next();
          if (!batch) break;
          ASSERT_EQ(batch->at(99), number);
        }
        ASSERT_EQ(number, std::min({stops_at, int64_t{30}}));
        ASSERT_LE(number, fails_at);
      } catch (const std::runtime_error&) {
        ASSERT_EQ(number, fails_at);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(workers, BatchPipelineTest, testing::Values(0, 1, 2, 5));

TEST(BatchPipeline, workers_make_batches_at_the_same_time) {
  // Each of two batches waits until the other is being made.
  std::atomic<int> running = 0;
  BatchPipeline<int> pipeline(2, 2);
  pipeline.start(2, [&](int64_t) {
    ++running;
    while (running < 2) std::this_thread::yield();
    return 1;
  });
  EXPECT_EQ(pipeline.next(), 1);
  EXPECT_EQ(pipeline.next(), 1);
}

TEST(BatchPipeline, the_threads_stay_from_pass_to_pass) {
  BatchPipeline<std::thread::id> pipeline(2, 4);
  std::set<std::thread::id> threads;
  for (int pass = 0; pass < 10; ++pass) {
    pipeline.start(20, [](int64_t) { return std::this_thread::get_id(); });
    while (const auto thread = pipeline.next()) threads.insert(*thread);
  }
  EXPECT_LE(threads.size(), 2U);
  EXPECT_FALSE(threads.contains(std::this_thread::get_id()));
}

TEST(BatchPipeline, numbers_that_make_no_loader_are_refused) {
  EXPECT_THAT([] { BatchPipeline<int>(-1, 1); }, ThrowsMessage<std::invalid_argument>(HasSubstr("-1 workers")));
  EXPECT_THROW(BatchPipeline<int>(1, 0), std::invalid_argument);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kIsSanitized = true;  // the sanitizer itself would find no memory
#else
constexpr bool kIsSanitized = false;
#endif

/// Every thread takes address space for its stack: with this little left some start, and then none.
void leave_little_address_space() {
  constexpr rlim_t kLeft = rlim_t{400} << 20;
  rlim_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const rlim_t most = pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE)) + kLeft;
  const rlimit limit{.rlim_cur = most, .rlim_max = most};
  if (::setrlimit(RLIMIT_AS, &limit) != 0) std::abort();
}

TEST(BatchPipelineDeathTest, more_workers_than_the_system_has_threads_are_refused_and_those_that_began_end) {
  if (kIsSanitized) GTEST_SKIP() << "the sanitizer itself needs address space";
  const auto ask_for_too_many = [] {
    leave_little_address_space();
    for (int round = 0; round < 2; ++round) {
      try {
        const BatchPipeline<int> pipeline(100'000, 4);
        std::_Exit(1);
      } catch (const std::system_error& error) {
        std::fprintf(stderr, "%s\n", error.what());
      }
    }
    BatchPipeline<int> pipeline(2, 4);  // there is room for a few again
    pipeline.start(1, [](int64_t) { return 7; });
    std::_Exit(pipeline.next() == 7 ? 0 : 2);
  };
  EXPECT_EXIT(ask_for_too_many(), testing::ExitedWithCode(0),
              "Loader: 100000 workers asked for, but the system let only [0-9]+ threads start: ask for fewer");
}

}  // namespace
}  // namespace ddp

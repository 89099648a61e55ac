// Batches made by threads: order, bounds, exceptions, and every way to end a pass.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <random>
#include <regex>
#include <set>
#include <system_error>
#include <thread>

#include <ddprun/detail/data/batch_pipeline.h>

#include "tests/support/captured_output.h"
#include "tests/support/catch.h"

namespace ddp {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::Message;
using Catch::Matchers::MessageMatches;

class BatchPipelineWorkers {
 protected:
  const int workers_ = GENERATE(0, 1, 2, 5);
  FIXTURE_INFO("workers: " << workers_);
};

TEST_CASE_METHOD(BatchPipelineWorkers, "BatchPipeline: gives every batch in order pass after pass") {
  BatchPipeline<std::unique_ptr<int64_t>> pipeline(workers_, 3);
  for (const int64_t count : {0, 1, 2, 50}) {
    pipeline.start(count, [](int64_t number) { return std::make_unique<int64_t>(10 * number); });
    for (int64_t number = 0; number < count; ++number) CHECK(**pipeline.next() == 10 * number);
    for (int i = 0; i < 2; ++i) CHECK_FALSE(pipeline.next().has_value());
  }
}

TEST_CASE_METHOD(BatchPipelineWorkers, "BatchPipeline: makes no more batches ahead than it may") {
  constexpr int64_t kPrefetch = 4;
  std::atomic<int64_t> made = 0;
  BatchPipeline<int64_t> pipeline(workers_, kPrefetch);
  pipeline.start(100, [&](int64_t number) {
    ++made;
    return number;
  });
  for (int64_t given = 0; given < 100; ++given) {
    CHECK(made <= given + kPrefetch);
    CHECK(pipeline.next() == given);
  }
}

TEST_CASE_METHOD(BatchPipelineWorkers, "BatchPipeline: an exception comes in the batch's place and ends the pass") {
  BatchPipeline<int64_t> pipeline(workers_, 3);
  const auto fails_at_5 = [](int64_t number) {
    if (number >= 5) throw std::runtime_error("batch " + std::to_string(number) + " failed");
    return number;
  };
  for (int round = 0; round < 3; ++round) {
    pipeline.start(20, fails_at_5);
    for (int64_t number = 0; number < 5; ++number) CHECK(pipeline.next() == number);
    CHECK_THROWS_MATCHES(pipeline.next(), std::runtime_error, Message("batch 5 failed"));
    CHECK_FALSE(pipeline.next().has_value());
  }
}

TEST_CASE_METHOD(BatchPipelineWorkers, "BatchPipeline: a pass may be left in the middle and another begun") {
  BatchPipeline<int64_t> pipeline(workers_, 5);
  for (int64_t pass = 0; pass < 20; ++pass) {
    pipeline.start(30, [pass](int64_t number) { return 100 * pass + number; });
    for (int64_t number = 0; number < pass; ++number) REQUIRE(pipeline.next() == 100 * pass + number);
  }
  pipeline.stop();
  CHECK_FALSE(pipeline.next().has_value());
}

TEST_CASE_METHOD(BatchPipelineWorkers, "BatchPipeline: what makes batches is interrupted where the pass is left") {
  std::atomic<bool> is_left = false;
  int interrupts = 0;
  const auto make = [&](int64_t number) {
    while (number >= 3 && !is_left) std::this_thread::yield();  // the caller wants batches 0 to 2
    return number;
  };
  const auto interrupt = [&] {
    is_left = true;
    ++interrupts;
  };
  {
    BatchPipeline<int64_t> pipeline(workers_, 5);
    const auto begin = [&] {
      is_left = false;
      pipeline.start(30, make, interrupt);
      for (int64_t number = 0; number < 3; ++number) CHECK(pipeline.next() == number);
    };
    begin();
    pipeline.stop();
    pipeline.stop();
    CHECK(interrupts == 1);
    begin();
    pipeline.start(1, [](int64_t number) { return number; });
    CHECK(interrupts == 2);
    begin();
  }
  CHECK(interrupts == 3);
}

TEST_CASE_METHOD(BatchPipelineWorkers, "BatchPipeline: a batch's exception does not wait for later batches") {
  std::atomic<bool> is_left = false;
  BatchPipeline<int64_t> pipeline(workers_, 5);
  const auto make = [&](int64_t number) {
    if (number == 1) throw std::runtime_error("failed");
    while (number > 1 && !is_left) std::this_thread::yield();
    return number;
  };
  pipeline.start(30, make, [&] { is_left = true; });
  CHECK(pipeline.next() == 0);
  CHECK_THROWS_MATCHES(pipeline.next(), std::runtime_error, Message("failed"));
}

/// 50 rounds unless DDPRUN_RACE_ROUNDS says otherwise.
int race_rounds() {
  const char* rounds = std::getenv("DDPRUN_RACE_ROUNDS");
  return rounds == nullptr ? 50 : std::atoi(rounds);
}

TEST_CASE_METHOD(BatchPipelineWorkers, "BatchPipeline: shutdown and exceptions race with the workers") {
  std::mt19937 random(9);
  for (int round = 0; round < race_rounds(); ++round) {
    BatchPipeline<std::vector<int64_t>> pipeline(workers_, static_cast<int64_t>(random() % 6 + 1));
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
          REQUIRE(batch->at(99) == number);
        }
        REQUIRE(number == std::min({stops_at, int64_t{30}}));
        REQUIRE(number <= fails_at);
      } catch (const std::runtime_error&) {
        REQUIRE(number == fails_at);
      }
    }
  }
}

TEST_CASE("BatchPipeline: workers make batches at the same time") {
  // Each of two batches waits until the other is being made.
  std::atomic<int> running = 0;
  BatchPipeline<int> pipeline(2, 2);
  pipeline.start(2, [&](int64_t) {
    ++running;
    while (running < 2) std::this_thread::yield();
    return 1;
  });
  CHECK(pipeline.next() == 1);
  CHECK(pipeline.next() == 1);
}

TEST_CASE("BatchPipeline: the threads stay from pass to pass") {
  BatchPipeline<std::thread::id> pipeline(2, 4);
  std::set<std::thread::id> threads;
  for (int pass = 0; pass < 10; ++pass) {
    pipeline.start(20, [](int64_t) { return std::this_thread::get_id(); });
    while (const auto thread = pipeline.next()) threads.insert(*thread);
  }
  CHECK(threads.size() <= 2U);
  CHECK_FALSE(threads.contains(std::this_thread::get_id()));
}

TEST_CASE("BatchPipeline: numbers that make no loader are refused") {
  CHECK_THROWS_MATCHES(BatchPipeline<int>(-1, 1), std::invalid_argument,
                       MessageMatches(ContainsSubstring("-1 workers")));
  CHECK_THROWS_AS(BatchPipeline<int>(1, 0), std::invalid_argument);
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

TEST_CASE("BatchPipeline: more workers than the system has threads are refused and those that began end") {
  if (kIsSanitized) SKIP("the sanitizer itself needs address space");
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
  const test::CapturedStderr said;
  const pid_t child = ::fork();
  if (child == 0) ask_for_too_many();
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
  const std::regex message(
      "Loader: 100000 workers were requested, but the system allowed only [0-9]+ threads: request fewer workers");
  CHECK(std::regex_search(said.text(), message));
}

}  // namespace
}  // namespace ddp

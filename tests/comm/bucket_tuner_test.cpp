#include "comm/core/bucket_tuner.h"

#include <stdexcept>
#include <string>
#include <vector>

#include <ddprun/comm/logging_data.h>

#include "tests/support/catch.h"

namespace ddp::detail {
namespace {

using Catch::Matchers::ContainsSubstring;

constexpr int64_t kMiB = int64_t{1} << 20;

TEST_CASE("BucketTuner: measures one bucket first and then smaller ones and takes the fastest") {
  BucketTuner tuner(10 * kMiB);
  std::vector<int64_t> tried;
  int steps = 0;
  while (!tuner.needs_decision()) {
    REQUIRE(++steps < 100);
    if (tried.empty() || tried.back() != tuner.bytes()) tried.push_back(tuner.bytes());
    tuner.record(tuner.bytes() == 2 * kMiB ? 1.0 : 2.0);
    CHECK_FALSE(tuner.is_finished());
  }
  CHECK(tried == std::vector<int64_t>{10 * kMiB, 8 * kMiB, 4 * kMiB, 2 * kMiB, kMiB, kMiB / 2, kMiB / 4});
  CHECK(tuner.times().size() == tried.size());
  tuner.decide(tuner.times());
  CHECK(tuner.is_finished());
  CHECK(tuner.bytes() == 2 * kMiB);
  tuner.record(0.001);
  CHECK(tuner.bytes() == 2 * kMiB);
}

TEST_CASE("BucketTuner: leaves the first step of a size out and keeps the best of the others") {
  BucketTuner tuner(kMiB / 8);
  for (const double seconds : {0.1, 3.0, 2.0, 4.0}) tuner.record(seconds);
  REQUIRE(tuner.needs_decision());
  CHECK(tuner.times() == std::vector<double>{2.0});
  CHECK_THROWS_AS(tuner.decide({1.0, 2.0}), std::invalid_argument);
}

TEST_CASE("BucketTuner: takes the larger of two sizes that differ less than steps do") {
  const auto chosen = [](double of_two_mib) {
    BucketTuner tuner(4 * kMiB);  // candidates: 4, 2, 1, 0.5 and 0.25 MiB
    while (!tuner.needs_decision()) tuner.record(1.0);
    tuner.decide({1.5, of_two_mib, 1.0, 1.005, 1.2});
    return tuner.bytes();
  };
  CHECK(chosen(1.015) == 2 * kMiB);
  CHECK(chosen(1.03) == kMiB);
}

TEST_CASE("BucketTuner: can be stopped with a given size") {
  BucketTuner tuner(100 * kMiB);
  tuner.record(1.0);
  tuner.stop(25 * kMiB);
  CHECK(tuner.is_finished());
  CHECK_FALSE(tuner.needs_decision());
  CHECK(tuner.bytes() == 25 * kMiB);
}

TEST_CASE("LoggingData: the table has a line for each fact") {
  const DdpLoggingData data{.module_name = "Net",
                            .backend = "gloo",
                            .rank = 1,
                            .world_size = 2,
                            .bucket_bytes = {100, 200},
                            .unused_parameters = {"a.weight", "b.bias"},
                            .last = {.forward = std::chrono::microseconds(1500)},
                            .error = "gone"};
  const std::string table = data.table();
  for (const char* part :
       {"1 of 2", "Net", "gloo", "none (all-reduce)", "100, 200 bytes", "a.weight, b.bias", "1.500", "gone"}) {
    CHECK_THAT(table, ContainsSubstring(part));
  }
}

}  // namespace
}  // namespace ddp::detail

#include "comm/bucket_tuner.h"

#include <gmock/gmock.h>

#include <stdexcept>

#include "comm/logging_data.h"

namespace ddp::detail {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

TEST(BucketTunerTest, measures_one_bucket_first_and_then_smaller_ones_and_takes_the_fastest) {
  BucketTuner tuner(10 * kMiB);
  std::vector<int64_t> tried;
  int steps = 0;
  while (!tuner.needs_decision()) {
    ASSERT_LT(++steps, 100);
    if (tried.empty() || tried.back() != tuner.bytes()) tried.push_back(tuner.bytes());
    tuner.record(tuner.bytes() == 2 * kMiB ? 1.0 : 2.0);
    EXPECT_FALSE(tuner.is_finished());
  }
  EXPECT_EQ(tried, (std::vector<int64_t>{10 * kMiB, 8 * kMiB, 4 * kMiB, 2 * kMiB, kMiB, kMiB / 2, kMiB / 4}));
  EXPECT_EQ(tuner.times().size(), tried.size());
  tuner.decide(tuner.times());
  EXPECT_TRUE(tuner.is_finished());
  EXPECT_EQ(tuner.bytes(), 2 * kMiB);
  tuner.record(0.001);
  EXPECT_EQ(tuner.bytes(), 2 * kMiB);
}

TEST(BucketTunerTest, leaves_the_first_step_of_a_size_out_and_keeps_the_best_of_the_others) {
  BucketTuner tuner(kMiB / 8);
  for (const double seconds : {0.1, 3.0, 2.0, 4.0}) tuner.record(seconds);
  ASSERT_TRUE(tuner.needs_decision());
  EXPECT_EQ(tuner.times(), std::vector<double>{2.0});
  EXPECT_THROW(tuner.decide({1.0, 2.0}), std::invalid_argument);
}

TEST(BucketTunerTest, takes_the_larger_of_two_sizes_that_differ_less_than_steps_do) {
  const auto chosen = [](double of_two_mib) {
    BucketTuner tuner(4 * kMiB);  // candidates: 4, 2, 1, 0.5 and 0.25 MiB
    while (!tuner.needs_decision()) tuner.record(1.0);
    tuner.decide({1.5, of_two_mib, 1.0, 1.005, 1.2});
    return tuner.bytes();
  };
  EXPECT_EQ(chosen(1.015), 2 * kMiB);
  EXPECT_EQ(chosen(1.03), kMiB);
}

TEST(BucketTunerTest, can_be_stopped_with_a_given_size) {
  BucketTuner tuner(100 * kMiB);
  tuner.record(1.0);
  tuner.stop(25 * kMiB);
  EXPECT_TRUE(tuner.is_finished());
  EXPECT_FALSE(tuner.needs_decision());
  EXPECT_EQ(tuner.bytes(), 25 * kMiB);
}

TEST(LoggingDataTest, the_table_has_a_line_for_each_fact) {
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
    EXPECT_THAT(table, testing::HasSubstr(part));
  }
}

}  // namespace
}  // namespace ddp::detail

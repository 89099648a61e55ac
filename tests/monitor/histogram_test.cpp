#include "monitor/histogram.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <random>

namespace ddp {
namespace {

using testing::ElementsAre;

// torch.utils.tensorboard 2.11: make_histogram(np.array([-0.5, 0, 0, 1e-3, 0.5, 2]), default bins) gives these.
TEST(Histogram, has_the_buckets_of_python) {
  const std::vector<double> values = {-0.5, 0.0, 0.0, 1e-3, 0.5, 2.0};
  const Histogram histogram = make_histogram(std::span(values));
  EXPECT_EQ(histogram.min, -0.5);
  EXPECT_EQ(histogram.max, 2.0);
  EXPECT_EQ(histogram.num, 6.0);
  EXPECT_EQ(histogram.sum, 2.001);
  EXPECT_EQ(histogram.sum_squares, 4.500001);
  ASSERT_EQ(histogram.limits.size(), 584U);
  ASSERT_EQ(histogram.counts.size(), histogram.limits.size());
  EXPECT_DOUBLE_EQ(histogram.limits.front(), -0.5177616740489182);
  EXPECT_DOUBLE_EQ(histogram.limits.back(), 2.1628190051144287);
  std::vector<size_t> occupied;
  for (size_t i = 0; i < histogram.counts.size(); ++i) {
    if (histogram.counts[i] > 0) occupied.push_back(i);
  }
  EXPECT_THAT(occupied, ElementsAre(1U, 285U, 503U, 568U, 583U));
}

TEST(Histogram, counts_every_finite_value_in_the_bucket_that_holds_it) {
  std::mt19937_64 random(3);
  std::uniform_real_distribution<double> exponent(-18, 19);
  std::vector<double> values;
  for (int i = 0; i < 5000; ++i) values.push_back((random() % 2 == 0 ? 1 : -1) * std::pow(10.0, exponent(random)));
  const Histogram histogram = make_histogram(std::span<const double>(values));
  EXPECT_EQ(std::accumulate(histogram.counts.begin(), histogram.counts.end(), 0.0), 5000.0);
  EXPECT_EQ(histogram.counts.front(), 0.0);
  EXPECT_GT(histogram.counts.back(), 0.0);
  for (size_t i = 1; i < histogram.limits.size(); ++i) {
    ASSERT_LT(histogram.limits[i - 1], histogram.limits[i]);
    const double inside = static_cast<double>(std::count_if(values.begin(), values.end(), [&](double value) {
      return value >= histogram.limits[i - 1] && value < histogram.limits[i];
    }));
    ASSERT_EQ(histogram.counts[i], inside) << "bucket " << i;
  }
}

TEST(Histogram, leaves_out_what_is_not_finite) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<float> values = {kNan, 1.0F, kInfinity, -kInfinity};
  EXPECT_EQ(make_histogram(std::span<const float>(values)).num, 1.0);
  const std::vector<float> none = {kNan, kInfinity};
  for (const auto& given : {none, std::vector<float>{}}) {
    const Histogram histogram = make_histogram(std::span<const float>(given));
    EXPECT_EQ(histogram.num, 0.0);
    EXPECT_EQ(histogram.min, 0.0);
    EXPECT_THAT(histogram.counts, ElementsAre(0.0));
    EXPECT_EQ(histogram.limits.size(), 1U);
  }
}

TEST(Histogram, values_beyond_the_limits_count_in_the_outermost_buckets) {
  const std::vector<double> values = {-1e300, 1e25};
  const Histogram histogram = make_histogram(std::span<const double>(values));
  EXPECT_EQ(histogram.counts[1], 1.0);
  EXPECT_EQ(histogram.counts.back(), 1.0);
  EXPECT_EQ(histogram.max, 1e25);
}

TEST(Histogram, takes_whole_numbers) {
  const std::vector<int64_t> values = {1, 1, 7};
  const Histogram histogram = make_histogram(std::span<const int64_t>(values));
  EXPECT_EQ(histogram.sum, 9.0);
  EXPECT_EQ(histogram.sum_squares, 51.0);
}

}  // namespace
}  // namespace ddp

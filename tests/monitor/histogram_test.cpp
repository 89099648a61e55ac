#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "monitor/event.h"
#include "tests/support/catch.h"
#include "tests/support/matchers.h"

namespace ddp {
namespace {

using Catch::Matchers::WithinULP;
using test::ElementsAre;

// torch.utils.tensorboard 2.11: make_histogram(np.array([-0.5, 0, 0, 1e-3, 0.5, 2]), default bins) gives these.
TEST_CASE("Histogram: has the buckets of Python") {
  const std::vector<double> values = {-0.5, 0.0, 0.0, 1e-3, 0.5, 2.0};
  const Histogram histogram = make_histogram(std::span(values));
  CHECK(histogram.min == -0.5);
  CHECK(histogram.max == 2.0);
  CHECK(histogram.num == 6.0);
  CHECK(histogram.sum == 2.001);
  CHECK(histogram.sum_squares == 4.500001);
  REQUIRE(histogram.limits.size() == 584U);
  REQUIRE(histogram.counts.size() == histogram.limits.size());
  CHECK_THAT(histogram.limits.front(), WithinULP(-0.5177616740489182, 4));
  CHECK_THAT(histogram.limits.back(), WithinULP(2.1628190051144287, 4));
  std::vector<size_t> occupied;
  for (size_t i = 0; i < histogram.counts.size(); ++i) {
    if (histogram.counts[i] > 0) occupied.push_back(i);
  }
  CHECK_THAT(occupied, ElementsAre(1U, 285U, 503U, 568U, 583U));
}

TEST_CASE("Histogram: counts every finite value in the bucket that holds it") {
  std::mt19937_64 random(3);
  std::uniform_real_distribution<double> exponent(-18, 19);
  std::vector<double> values;
  for (int i = 0; i < 5000; ++i) values.push_back((random() % 2 == 0 ? 1 : -1) * std::pow(10.0, exponent(random)));
  const Histogram histogram = make_histogram(std::span<const double>(values));
  CHECK(std::accumulate(histogram.counts.begin(), histogram.counts.end(), 0.0) == 5000.0);
  CHECK(histogram.counts.front() == 0.0);
  CHECK(histogram.counts.back() > 0.0);
  for (size_t i = 1; i < histogram.limits.size(); ++i) {
    REQUIRE(histogram.limits[i - 1] < histogram.limits[i]);
    const double inside = static_cast<double>(std::count_if(values.begin(), values.end(), [&](double value) {
      return value >= histogram.limits[i - 1] && value < histogram.limits[i];
    }));
    INFO("bucket " << i);
    REQUIRE(histogram.counts[i] == inside);
  }
}

TEST_CASE("Histogram: leaves out what is not finite") {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<float> values = {kNan, 1.0F, kInfinity, -kInfinity};
  CHECK(make_histogram(std::span<const float>(values)).num == 1.0);
  const std::vector<float> none = {kNan, kInfinity};
  for (const auto& given : {none, std::vector<float>{}}) {
    const Histogram histogram = make_histogram(std::span<const float>(given));
    CHECK(histogram.num == 0.0);
    CHECK(histogram.min == 0.0);
    CHECK_THAT(histogram.counts, ElementsAre(0.0));
    CHECK(histogram.limits.size() == 1U);
  }
}

TEST_CASE("Histogram: values beyond the limits count in the outermost buckets") {
  const std::vector<double> values = {-1e300, 1e25};
  const Histogram histogram = make_histogram(std::span<const double>(values));
  CHECK(histogram.counts[1] == 1.0);
  CHECK(histogram.counts.back() == 1.0);
  CHECK(histogram.max == 1e25);
}

TEST_CASE("Histogram: takes whole numbers") {
  const std::vector<int64_t> values = {1, 1, 7};
  const Histogram histogram = make_histogram(std::span<const int64_t>(values));
  CHECK(histogram.sum == 9.0);
  CHECK(histogram.sum_squares == 51.0);
}

}  // namespace
}  // namespace ddp

// The pure parts: merging of statistics, and each instruction set's kernels against plain loops. No LibTorch headers.
#include "syncbn/gather_stats.h"

#include <cmath>
#include <random>
#include <tuple>
#include <vector>

#include "syncbn/simd_kernels.h"
#include "tests/support/catch.h"

namespace ddp::detail {
namespace {

using Catch::Matchers::WithinAbs;

using Values = std::vector<double>;

struct Exact {
  long double mean = 0;
  long double variance = 0;
};

Exact exact(const Values& values) {
  Exact result;
  for (const double value : values) result.mean += value;
  result.mean /= static_cast<long double>(values.size());
  for (const double value : values) result.variance += (value - result.mean) * (value - result.mean);
  result.variance /= static_cast<long double>(values.size());
  return result;
}

// A rank's row for one channel.
Values row_of(const Values& values) {
  if (values.empty()) return {0, 0, 0};
  const Exact e = exact(values);
  const auto n = static_cast<double>(values.size());
  return {n, static_cast<double>(e.mean), static_cast<double>(e.variance) * n};
}

Values normal(std::mt19937& generator, size_t count, double mean, double deviation) {
  std::normal_distribution<double> distribution(mean, deviation);
  Values values(count);
  for (double& value : values) value = distribution(generator);
  return values;
}

void expect_relative(double actual, double expected, double tolerance) {
  CHECK_THAT(actual, WithinAbs(expected, tolerance * std::abs(expected)));
}

struct GatheredShare {
  size_t values;
  double mean;
  double deviation;
};

void expect_merge(const std::vector<GatheredShare>& shares, double tolerance = 1e-13) {
  std::mt19937 generator(3);
  Values rows;
  Values together;
  for (const GatheredShare& share : shares) {
    const Values values = normal(generator, share.values, share.mean, share.deviation);
    const Values row = row_of(values);
    rows.insert(rows.end(), row.begin(), row.end());
    together.insert(together.end(), values.begin(), values.end());
  }
  double mean = 0;
  double variance = 0;
  const double count = gather_stats(rows.data(), static_cast<int64_t>(shares.size()), 3, 1, &mean, &variance);
  const Exact expected = exact(together);
  CHECK(count == static_cast<double>(together.size()));
  expect_relative(mean, static_cast<double>(expected.mean), 1e-14);
  expect_relative(variance, static_cast<double>(expected.variance), tolerance);
}

TEST_CASE("GatherStats: equals the statistics of all values together") {
  expect_merge({{10, 0, 1}, {10, 1, 2}});
  expect_merge({{1, 5, 1}, {1000, -5, 0.1}, {3, 100, 10}});
  expect_merge({{7, 1, 1}});
}

TEST_CASE("GatherStats: an empty rank adds nothing wherever it is") {
  expect_merge({{0, 0, 0}, {10, 1, 2}});
  expect_merge({{10, 1, 2}, {0, 0, 0}, {5, 3, 1}});
  expect_merge({{0, 0, 0}, {0, 0, 0}, {4, 3, 1}, {0, 0, 0}});
}

TEST_CASE("GatherStats: large means and tiny variances do not cancel") {
  // A sum of squares would have no digit left; the mean itself has 8 of the deviation.
  expect_merge({{100, 1e8, 1}, {50, 1e8, 1}, {1, 1e8, 1}}, 1e-8);
  expect_merge({{100, 1, 1e-8}, {50, 1, 1e-8}}, 1e-8);
}

TEST_CASE("GatherStats: without any value it gives zeros") {
  const Values rows{0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
  double mean[2] = {7, 7};
  double variance[2] = {7, 7};
  CHECK(gather_stats(rows.data(), 2, 5, 2, mean, variance) == 0);
  CHECK(mean[1] == 0);
  CHECK(variance[1] == 0);
}

TEST_CASE("GatherStats: rows may carry more than it reads") {
  const Values rows{2, 1, 0, 99, 2, 3, 0, 99};
  double mean = 0;
  double variance = 0;
  CHECK(gather_stats(rows.data(), 2, 4, 1, &mean, &variance) == 4);
  CHECK(mean == 2);
  CHECK(variance == 1);
}

TEST_CASE("GatherStats: running statistics move by the momentum") {
  double running[2] = {1, 10};
  const double batch[2] = {2, 20};
  update_running(running, batch, 2, 0.25);
  CHECK(running[0] == 1.25);
  CHECK(running[1] == 12.5);
}

std::vector<const SimdLevel*> levels() {
  const SimdLevel* all[2];
  return {all, all + supported_simd_levels(all)};
}

class Kernels {
 protected:
  const SimdLevel& level() const { return *level_; }

  const SimdLevel* const level_ = GENERATE(from_range(levels()));
  FIXTURE_INFO("level: " << level_->name);
};

// Lengths around the kernels' own block and lane sizes.
const std::vector<int64_t> kLengths{1, 2, 31, 32, 33, 63, 64, 65, 127, 1023, 1024, 1025, 3000};

TEST_CASE_METHOD(Kernels, "Kernels: a run has the moments of its values") {
  std::mt19937 generator(1);
  for (const int64_t n : kLengths) {
    const Values x = normal(generator, static_cast<size_t>(n), 1000, 0.5);
    const Exact expected = exact(x);
    Moments moments;
    level().f64.run_moments(x.data(), n, moments);
    CHECK(moments.count == n);
    expect_relative(moments.mean, static_cast<double>(expected.mean), 1e-14);
    CHECK_THAT(moments.m2, WithinAbs(static_cast<double>(expected.variance) * static_cast<double>(n), 1e-9));
  }
}

TEST_CASE_METHOD(Kernels, "Kernels: runs add up") {
  std::mt19937 generator(2);
  const Values x = normal(generator, 500, -3, 2);
  Moments moments;
  level().f64.run_moments(x.data(), 100, moments);
  level().f64.run_moments(x.data() + 100, 400, moments);
  const Exact expected = exact(x);
  CHECK(moments.count == 500);
  expect_relative(moments.mean, static_cast<double>(expected.mean), 1e-13);
  expect_relative(moments.m2, static_cast<double>(expected.variance) * 500, 1e-13);
}

TEST_CASE_METHOD(Kernels, "Kernels: rows and runs agree") {
  std::mt19937 generator(4);
  for (const int64_t rows : {1, 3, 64, 65, 200}) {
    for (const int64_t width : {1, 5, 64, 70}) {
      const Values x = normal(generator, static_cast<size_t>(rows * width), 10, 1);
      const Values dy = normal(generator, x.size(), 0, 1);
      const auto columns = static_cast<size_t>(width);
      Values mean(columns), m2(columns), sum(columns), product(columns);
      level().f64.row_moments(x.data(), rows, width, width, 0, mean.data(), m2.data());
      level().f64.row_sums(dy.data(), x.data(), rows, width, width, mean.data(), sum.data(), product.data());
      for (size_t c = 0; c < columns; ++c) {
        Values values, gradients;
        for (size_t r = 0; r < static_cast<size_t>(rows); ++r) {
          values.push_back(x[r * columns + c]);
          gradients.push_back(dy[r * columns + c]);
        }
        Moments moments;
        GradientSums sums;
        level().f64.run_moments(values.data(), rows, moments);
        level().f64.run_sums(gradients.data(), values.data(), rows, moments.mean, sums);
        expect_relative(mean[c], moments.mean, 1e-13);
        CHECK_THAT(m2[c], WithinAbs(moments.m2, 1e-11));
        CHECK_THAT(sum[c], WithinAbs(sums.dy, 1e-11));
        CHECK_THAT(product[c], WithinAbs(sums.dy_xmu, 1e-11));
      }
    }
  }
}

TEST_CASE_METHOD(Kernels, "Kernels: elementwise results have their formula") {
  std::mt19937 generator(5);
  for (const int64_t n : kLengths) {
    const Values x = normal(generator, static_cast<size_t>(n), 0, 1);
    const Values dy = normal(generator, static_cast<size_t>(n), 0, 1);
    Values y(x.size()), dx(x.size());
    level().f64.run_normalize(x.data(), y.data(), n, {0.5, 3, 7});
    level().f64.run_gradient(dy.data(), x.data(), dx.data(), n, {0.5, 3, -2, 7});
    for (size_t i = 0; i < x.size(); ++i) {
      CHECK_THAT(y[i], WithinAbs((x[i] - 0.5) * 3 + 7, 1e-14));
      CHECK_THAT(dx[i], WithinAbs(dy[i] * 3 + (x[i] - 0.5) * -2 + 7, 1e-13));
    }
  }
}

TEST_CASE_METHOD(Kernels, "Kernels: bfloat16 rounds to nearest even and keeps NaN") {
  // 1, 1 + 2^-7 (the next one), NaN
  const BFloat16Bits x[4] = {{0x3F80}, {0x3F81}, {0x7FC0}, {0xBF80}};
  BFloat16Bits y[4];
  level().bf16.run_normalize(x, y, 4, {0, 1, 0});
  CHECK(y[0].bits == 0x3F80);
  CHECK(y[1].bits == 0x3F81);
  CHECK((y[2].bits & 0x7F) != 0);
  CHECK(y[3].bits == 0xBF80);
  level().bf16.run_normalize(x, y, 2, {0, 1, 1.0F / 256});  // halfway to the next one: the even one
  CHECK(y[0].bits == 0x3F80);
  CHECK(y[1].bits == 0x3F82);
}

TEST_CASE_METHOD(Kernels, "Kernels: half precision is read and written") {
  const HalfBits x[3] = {{0x3C00}, {0xC000}, {0x0001}};  // 1, -2, 2^-24
  HalfBits y[3];
  level().f16.run_normalize(x, y, 3, {0, 2, 0});
  CHECK(y[0].bits == 0x4000);
  CHECK(y[1].bits == 0xC400);
  CHECK(y[2].bits == 0x0002);
}

}  // namespace
}  // namespace ddp::detail

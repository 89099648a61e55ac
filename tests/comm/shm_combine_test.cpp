// Sums of several ranks' numbers: each instruction set against plain arithmetic, element by element.
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "comm/shm/combine.h"
#include "comm/shm/half_numbers.h"
#include "comm/shm/reduction.h"
#include "tests/support/catch.h"

namespace ddp::shm {
namespace {

std::vector<const CombineLevel*> levels() {
  const CombineLevel* found[3];
  const int count = supported_combine_levels(found);
  return {found, found + count};
}

template <typename T>
std::vector<std::vector<T>> random_values(int sources, size_t count) {
  std::mt19937 random(7);
  std::vector<std::vector<T>> values(static_cast<size_t>(sources), std::vector<T>(count));
  for (auto& source : values) {
    for (T& value : source) value = static_cast<T>(std::uniform_int_distribution<int>(-120, 120)(random));
    if constexpr (std::is_floating_point_v<T>) {
      for (T& value : source) value /= T{7};
    }
  }
  return values;
}

template <typename T>
std::vector<T> combined(const CombineLevel& level, DType dtype, Operator op, const std::vector<std::vector<T>>& values,
                        bool round_each_step = false) {
  std::vector<const std::byte*> sources;
  for (const auto& source : values) sources.push_back(reinterpret_cast<const std::byte*>(source.data()));
  std::vector<T> out(values[0].size());
  const Combine combine = level.find(dtype, op);
  REQUIRE(combine != nullptr);
  combine(reinterpret_cast<std::byte*>(out.data()), sources.data(), static_cast<int>(sources.size()), out.size(),
          round_each_step);
  return out;
}

template <typename T>
T plainly(Operator op, T a, T b) {
  switch (op) {
    case Operator::kProduct:
      return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
    case Operator::kMin:
      return std::min(a, b);
    case Operator::kMax:
      return std::max(a, b);
    case Operator::kAnd:
      return static_cast<T>(a & b);
    case Operator::kOr:
      return static_cast<T>(a | b);
    case Operator::kXor:
      return static_cast<T>(a ^ b);
    default:
      return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  }
}

template <typename T>
void check_integers(DType dtype) {
  for (const CombineLevel* level : levels()) {
    for (const Operator op : {Operator::kSum, Operator::kProduct, Operator::kMin, Operator::kMax, Operator::kAnd,
                              Operator::kOr, Operator::kXor}) {
      for (const int sources : {1, 2, 3, 7}) {
        const auto values = random_values<T>(sources, 1031);
        std::vector<T> expected = values[0];
        for (size_t source = 1; source < values.size(); ++source) {
          for (size_t i = 0; i < expected.size(); ++i) expected[i] = plainly(op, expected[i], values[source][i]);
        }
        INFO(level->name << ", operator " << static_cast<int>(op) << ", sources " << sources);
        CHECK(combined(*level, dtype, op, values) == expected);
      }
    }
  }
}

TEST_CASE("ShmCombine: integers of every width wrap around and have bits, on every instruction set") {
  check_integers<int8_t>(DType::kInt8);
  check_integers<uint8_t>(DType::kUInt8);
  check_integers<int32_t>(DType::kInt32);
  check_integers<int64_t>(DType::kInt64);
}

template <typename T>
void check_floats(DType dtype) {
  for (const CombineLevel* level : levels()) {
    for (const int sources : {1, 2, 3, 7}) {
      const auto values = random_values<T>(sources, 1031);
      std::vector<T> sum = values[0];
      std::vector<T> product = values[0];
      for (size_t source = 1; source < values.size(); ++source) {
        for (size_t i = 0; i < sum.size(); ++i) {
          sum[i] += values[source][i];
          product[i] *= values[source][i];
        }
      }
      INFO(level->name << ", sources " << sources);
      CHECK(combined(*level, dtype, Operator::kSum, values) == sum);
      CHECK(combined(*level, dtype, Operator::kProduct, values) == product);
      for (T& value : sum) value /= static_cast<T>(sources);
      CHECK(combined(*level, dtype, Operator::kAverage, values) == sum);
      CHECK(level->find(dtype, Operator::kXor) == nullptr);
    }
  }
}

TEST_CASE("ShmCombine: sums and products of float32 and float64 go from the first rank to the last") {
  check_floats<float>(DType::kFloat32);
  check_floats<double>(DType::kFloat64);
}

TEST_CASE("ShmCombine: every 16-bit number survives the way to float32 and back") {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto value = static_cast<uint16_t>(bits);
    const bool is_half_nan = (value & 0x7FFFU) > 0x7C00U;
    const bool is_bfloat_nan = (value & 0x7FFFU) > 0x7F80U;
    if (!is_half_nan && float_to_half(half_to_float(value)) != value) FAIL("half " << bits);
    if (is_half_nan && !std::isnan(half_to_float(float_to_half(half_to_float(value))))) FAIL("half NaN " << bits);
    if (!is_bfloat_nan && float_to_bfloat(bfloat_to_float(value)) != value) FAIL("bfloat " << bits);
    if (is_bfloat_nan && !std::isnan(bfloat_to_float(float_to_bfloat(bfloat_to_float(value))))) FAIL("NaN " << bits);
  }
}

// The nearest of all halves, of two equally near ones the even one.
uint16_t nearest_half(float value) {
  uint16_t best = 0;
  for (uint32_t bits = 0; bits < 0x7C00; ++bits) {
    const auto candidate = static_cast<uint16_t>(bits);
    const double distance = std::abs(static_cast<double>(half_to_float(candidate)) - value);
    const double least = std::abs(static_cast<double>(half_to_float(best)) - value);
    if (distance < least || (distance == least && candidate % 2 == 0)) best = candidate;
  }
  return best;
}

TEST_CASE("ShmCombine: float32 becomes the nearest half, ties to even, up to infinity") {
  std::mt19937 random(3);
  for (int i = 0; i < 300; ++i) {
    const float value = std::ldexp(1.F + std::uniform_real_distribution<float>(0, 1)(random),
                                   std::uniform_int_distribution<int>(-27, 14)(random));
    INFO(value);
    CHECK(float_to_half(value) == nearest_half(value));
    CHECK(float_to_half(-value) == (nearest_half(value) | 0x8000U));
  }
  CHECK(float_to_half(0x1.002p0F) == 0x3C00);  // a tie, down to even
  CHECK(float_to_half(0x1.006p0F) == 0x3C02);  // up to even
  CHECK(float_to_half(65519.F) == 0x7BFF);
  CHECK(float_to_half(65520.F) == 0x7C00);
  CHECK(float_to_half(0x1p-25F) == 0);  // a tie
  CHECK(float_to_half(0x1.8p-25F) == 1);
  CHECK(float_to_half(std::numeric_limits<float>::infinity()) == 0x7C00);
}

TEST_CASE("ShmCombine: 16-bit sums are rounded once, or after each step as gloo does") {
  for (const CombineLevel* level : levels()) {
    INFO(level->name);
    const std::vector<std::vector<uint16_t>> values(4, std::vector<uint16_t>(300, float_to_bfloat(1.F / 256 + 1)));
    const auto at_once = combined(*level, DType::kBFloat16, Operator::kSum, values);
    float wide = 0;
    float stepwise = bfloat_to_float(values[0][0]);
    for (const auto& source : values) wide += bfloat_to_float(source[0]);
    for (size_t i = 1; i < values.size(); ++i) {
      stepwise = bfloat_to_float(float_to_bfloat(stepwise + bfloat_to_float(values[i][0])));
    }
    CHECK(at_once == std::vector<uint16_t>(300, float_to_bfloat(wide)));
    CHECK(combined(*level, DType::kBFloat16, Operator::kSum, values, true) ==
          std::vector<uint16_t>(300, float_to_bfloat(stepwise)));
  }
}

}  // namespace
}  // namespace ddp::shm

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <stdexcept>
#include <string>

#include "ddprun/samplers/shard.h"

namespace ddp {
namespace {

/// Python's sum() of floats since version 3.12, which compensates for rounding errors (Neumaier): 0.7, 0.2 and 0.1 give
/// exactly 1.
double exact_sum(std::span<const double> values) {
  double sum = 0;
  double lost = 0;
  for (const double value : values) {
    const double next = sum + value;
    lost += std::abs(sum) >= std::abs(value) ? (sum - next) + value : (value - next) + sum;
    sum = next;
  }
  return sum + lost;
}

}  // namespace

std::vector<int64_t> split_lengths(int64_t size, std::span<const double> fractions) {
  const double sum = exact_sum(fractions);
  constexpr double kClose = 1e-9;  // the relative tolerance of math.isclose()
  if (!(sum <= 1) || std::abs(sum - 1) > kClose * std::max(sum, 1.0)) {
    throw std::invalid_argument("random_split: the fractions add up to " + std::to_string(sum) + ", expected 1");
  }
  std::vector<int64_t> lengths;
  for (const double fraction : fractions) {
    if (fraction < 0 || fraction > 1) {
      throw std::invalid_argument("random_split: the fraction at index " + std::to_string(lengths.size()) + " is " +
                                  std::to_string(fraction) + ", expected 0 to 1");
    }
    lengths.push_back(static_cast<int64_t>(std::floor(static_cast<double>(size) * fraction)));
  }
  const int64_t left = size - std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  for (int64_t i = 0; i < left; ++i) ++lengths[static_cast<size_t>(i) % lengths.size()];
  return lengths;
}

std::vector<std::vector<int64_t>> random_split_indices(int64_t size, std::span<const int64_t> lengths, uint64_t seed) {
  const int64_t sum = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  const bool has_negative = std::ranges::any_of(lengths, [](int64_t length) { return length < 0; });
  if (has_negative || sum != size) {
    std::string text;
    for (const int64_t length : lengths) text.append(text.empty() ? "" : ", ").append(std::to_string(length));
    throw std::invalid_argument("random_split: expected lengths that add up to the dataset's " + std::to_string(size) +
                                " samples, got " + text);
  }
  const std::vector<int64_t> order = permutation(size, seed);
  std::vector<std::vector<int64_t>> splits;
  auto begin = order.begin();
  for (const int64_t length : lengths) {
    splits.emplace_back(begin, begin + length);
    begin += length;
  }
  return splits;
}

}  // namespace ddp

#include "monitor/histogram.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

namespace ddp {
namespace {

std::vector<double> default_limits() {
  std::vector<double> positive;
  for (double limit = 1e-12; limit < 1e20; limit *= 1.1) positive.push_back(limit);
  std::vector<double> limits;
  for (auto limit = positive.rbegin(); limit != positive.rend(); ++limit) limits.push_back(-*limit);
  limits.push_back(0);
  limits.insert(limits.end(), positive.begin(), positive.end());
  return limits;
}

/// Drops the empty buckets on both sides, but for one on the left: its limit is where the first full one begins.
void keep_occupied(Histogram& histogram, const std::vector<double>& limits, const std::vector<double>& counts) {
  const auto occupied = [](double count) { return count > 0; };
  const auto first = std::find_if(counts.begin(), counts.end(), occupied) - counts.begin();
  const auto end = std::find_if(counts.rbegin(), counts.rend(), occupied).base() - counts.begin();
  histogram.limits.assign(limits.begin() + first, limits.begin() + end + 1);
  histogram.counts.assign(1, 0.0);
  histogram.counts.insert(histogram.counts.end(), counts.begin() + first, counts.begin() + end);
}

template <typename Value>
Histogram make(std::span<const Value> values) {
  const std::vector<double> limits = default_limits();
  std::vector<double> counts(limits.size() - 1, 0.0);
  Histogram histogram{.min = std::numeric_limits<double>::infinity(), .max = -std::numeric_limits<double>::infinity()};
  for (const Value given : values) {
    const auto value = static_cast<double>(given);
    if (!std::isfinite(value)) continue;
    const auto above = std::upper_bound(limits.begin(), limits.end(), value) - limits.begin();
    ++counts[static_cast<size_t>(std::clamp<std::ptrdiff_t>(above - 1, 0, std::ssize(counts) - 1))];
    histogram.min = std::min(histogram.min, value);
    histogram.max = std::max(histogram.max, value);
    histogram.num += 1;
    histogram.sum += value;
    histogram.sum_squares += value * value;
  }
  if (histogram.num == 0) return {.limits = {0.0}, .counts = {0.0}};
  keep_occupied(histogram, limits, counts);
  return histogram;
}

}  // namespace

Histogram make_histogram(std::span<const float> values) {
  return make(values);
}

Histogram make_histogram(std::span<const double> values) {
  return make(values);
}

Histogram make_histogram(std::span<const int64_t> values) {
  return make(values);
}

}  // namespace ddp

#include "timeline/expected_maximum.h"

#include <algorithm>
#include <cmath>

namespace ddp::timelines {
namespace {

// The largest of `count` draws is at most the i-th of n values with probability (i / n)^count.
double of_draws(const std::vector<double>& sorted, double count) {
  const auto size = static_cast<double>(sorted.size());
  double sum = 0;
  double below = 0;
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    const double up_to = std::pow(static_cast<double>(i + 1) / size, count);
    sum += sorted[i] * (up_to - below);
    below = up_to;
  }
  return sum;
}

}  // namespace

double expected_maximum(const std::vector<double>& sorted, std::int64_t count) {
  const auto draws = static_cast<double>(count);
  const double known = std::max(static_cast<double>(sorted.size()) / 2, 1.0);
  if (draws <= known) return of_draws(sorted, draws);
  const double of_known = of_draws(sorted, known);
  const double slope = (of_known - of_draws(sorted, known / 2)) / std::log(2.0);
  return of_known + slope * std::log(draws / known);
}

}  // namespace ddp::timelines

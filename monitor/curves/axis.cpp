#include "monitor/curves/axis.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>
#include <set>

namespace ddp::curves {
namespace {

constexpr double kLargest = 1e300;
constexpr size_t kMaxTicks = 100;

/// Returns the smallest number that is at least `step` and is 1, 2 or 5 times a power of ten.
double round_step(double step) {
  const double power = std::pow(10.0, std::floor(std::log10(step)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= step) return factor * power;
  }
  return 10 * power;
}

bool is_one_value(double least, double most) {
  const double smallest = std::max(std::abs(least), std::abs(most)) * 1e-9;
  return most - least <= smallest || most - least <= 1e-300;
}

/// Returns half of the value, which is the margin on both sides of a single value: the chart then shows its magnitude
/// instead of its noise.
double room_around(double value) {
  return std::abs(value) > 1e-300 ? std::abs(value) / 2 : 1;
}

}  // namespace

double Axis::place(double value) const {
  // All numbers are halved, so that the difference of two huge numbers is finite.
  return (value / 2 - begin / 2) / (end / 2 - begin / 2);
}

Axis make_axis(double least, double most, const AxisOptions& options) {
  least = std::clamp(least, -kLargest, kLargest);
  most = std::clamp(most, -kLargest, kLargest);
  if (options.whole && least == most && std::abs(least) < 1e15) {
    return {.begin = least - 1, .end = least + 1, .ticks = {least}};
  }
  const double room = is_one_value(least, most) ? room_around(least) : options.margin * (most - least);
  Axis axis{.begin = least - room, .end = most + room};
  double step = round_step((axis.end - axis.begin) / std::max(1, options.ticks));
  if (options.whole) step = std::max(step, 1.0);
  for (double count = std::ceil(axis.begin / step); count * step <= axis.end; ++count) {
    axis.ticks.push_back(count == 0 ? 0.0 : count * step);
    if (axis.ticks.size() > kMaxTicks) break;  // the numbers are so close that adding a step does not change them
  }
  return axis;
}

std::string tick_label(double value, int digits) {
  std::array<char, 64> text{};
  const double size = std::abs(value);
  if (size >= 1e6 && size < 1e9) {
    std::snprintf(text.data(), text.size(), "%.*gM", digits, value / 1e6);
  } else if (size >= 1e4 && size < 1e6) {
    std::snprintf(text.data(), text.size(), "%.*gk", digits, value / 1e3);
  } else {
    std::snprintf(text.data(), text.size(), "%.*g", digits, value);
  }
  return text.data();
}

std::vector<std::string> tick_labels(const Axis& axis) {
  std::vector<std::string> labels;
  for (int digits = 5; digits <= std::numeric_limits<double>::max_digits10; ++digits) {
    labels.clear();
    for (const double tick : axis.ticks) labels.push_back(tick_label(tick, digits));
    if (std::set<std::string>(labels.begin(), labels.end()).size() == labels.size()) break;
  }
  return labels;
}

}  // namespace ddp::curves

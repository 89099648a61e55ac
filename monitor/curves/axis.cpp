#include "monitor/curves/axis.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

namespace ddp::curves {
namespace {

/// The smallest of 1, 2, 5 times a power of ten that is at least `step`.
double round_step(double step) {
  const double power = std::pow(10.0, std::floor(std::log10(step)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= step) return factor * power;
  }
  return 10 * power;
}

/// Room on both sides, so that a flat curve is in the middle of its chart.
void widen(double& least, double& most) {
  const double smallest = std::max(std::abs(least), std::abs(most)) * 1e-9;
  if (most - least > smallest && most - least > 1e-300) return;
  const double room = std::max(std::abs(least) * 0.5, 1e-12);
  least -= room;
  most += room;
}

}  // namespace

double Axis::place(double value) const {
  // Halves, so that the difference of two huge numbers stays finite.
  return (value / 2 - begin / 2) / (end / 2 - begin / 2);
}

Axis make_axis(double least, double most, int ticks) {
  constexpr double kLargest = 1e300;
  least = std::clamp(least, -kLargest, kLargest);
  most = std::clamp(most, -kLargest, kLargest);
  widen(least, most);
  Axis axis{.begin = least, .end = most};
  const double step = round_step((most - least) / std::max(1, ticks));
  for (double count = std::ceil(least / step); count * step <= most; ++count) {
    axis.ticks.push_back(count == 0 ? 0.0 : count * step);
    if (axis.ticks.size() > 100) break;  // numbers so close that a step adds nothing
  }
  return axis;
}

std::string tick_label(double value) {
  std::array<char, 64> text{};
  const double size = std::abs(value);
  if (size >= 1e6 && size < 1e9) {
    std::snprintf(text.data(), text.size(), "%.5gM", value / 1e6);
  } else if (size >= 1e4 && size < 1e6) {
    std::snprintf(text.data(), text.size(), "%.5gk", value / 1e3);
  } else {
    std::snprintf(text.data(), text.size(), "%.5g", value);
  }
  return text.data();
}

}  // namespace ddp::curves

// An axis of a chart: which range it shows and where its round numbers are.
#pragma once

#include <string>
#include <vector>

namespace ddp::curves {

struct Axis {
  double begin = 0;
  double end = 1;
  std::vector<double> ticks{};  ///< multiples of 1, 2 or 5 times a power of ten, within the range

  /// 0 at the axis's begin, 1 at its end.
  double place(double value) const;
};

/// An axis of about `ticks` round numbers that contains [least, most], both finite.
Axis make_axis(double least, double most, int ticks);

/// "0.05", "1.2e-7", "20k": short.
std::string tick_label(double value);

}  // namespace ddp::curves

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

struct AxisOptions {
  int ticks = 5;       ///< about as many round numbers
  double margin = 0;   ///< room on both sides, as a part of the range
  bool whole = false;  ///< the values are whole numbers, such as steps: so are the ticks
};

/// An axis that contains [least, most], both finite. Where both are one value it is in the middle.
Axis make_axis(double least, double most, const AxisOptions& options = {});

/// "0.05", "1.2e-7", "20k": a label for each tick, short, but long enough that no two are equal.
std::vector<std::string> tick_labels(const Axis& axis);

/// A number in up to this many digits.
std::string tick_label(double value, int digits = 5);

}  // namespace ddp::curves

// The axis of a chart: the range that it shows, and its tick marks.
#pragma once

#include <string>
#include <vector>

namespace ddp::curves {

struct Axis {
  double begin = 0;
  double end = 1;
  std::vector<double> ticks{};  ///< multiples of 1, 2 or 5 times a power of ten, within the range

  /// Returns the position of a value: 0 is the beginning of the axis, 1 its end.
  double place(double value) const;
};

struct AxisOptions {
  int ticks = 5;       ///< the approximate number of ticks
  double margin = 0;   ///< the margin on both sides, relative to the range
  bool whole = false;  ///< the values are whole numbers, such as steps, so the ticks must be as well
};

/// Returns an axis that contains [least, most]; both must be finite. If they are equal, the value is in the middle of
/// the axis.
Axis make_axis(double least, double most, const AxisOptions& options = {});

/// Returns a label for each tick, such as "0.05", "1.2e-7" or "20k". Labels are short, but long enough to be distinct.
std::vector<std::string> tick_labels(const Axis& axis);

/// Formats a number with at most `digits` digits.
std::string tick_label(double value, int digits = 5);

}  // namespace ddp::curves

// The contents of an image of curves, independent of how it is drawn.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

namespace ddp::curves {

/// One line of a chart.
struct Line {
  std::string label{};
  std::vector<double> x{};
  std::vector<double> y{};  ///< has the size of `x`; the line has a gap if a value is not finite
};

struct Chart {
  std::string title{};
  std::string x_label{};
  std::vector<Line> lines{};
};

struct ChartOptions {
  int64_t columns = 2;  ///< the number of charts in a row
  int64_t width = 480;  ///< the width of a chart with its margins, in pixels
  int64_t height = 300;
};

/// Smooths like TensorBoard's slider: an exponential moving average with this weight, which must be at least 0 and less
/// than 1, and without a bias at the beginning. Values that are not finite are kept, but are not included in the
/// average.
inline std::vector<double> smoothed(const std::vector<double>& values, double weight) {
  std::vector<double> result;
  double mean = 0;
  double bias = 1;
  for (const double value : values) {
    if (!std::isfinite(value)) {
      result.push_back(value);
      continue;
    }
    mean = weight * mean + (1 - weight) * value;
    bias *= weight;
    result.push_back(mean / (1 - bias));
  }
  return result;
}

}  // namespace ddp::curves

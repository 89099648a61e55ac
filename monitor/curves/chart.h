// What a picture of curves shows, before anything is drawn.
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
  std::vector<double> y{};  ///< as many as x; the line has a gap where a value is not finite
};

struct Chart {
  std::string title{};
  std::string x_label{};
  std::vector<Line> lines{};
};

struct ChartOptions {
  int64_t columns = 2;  ///< charts beside each other
  int64_t width = 480;  ///< of a chart with its margins, in pixels
  int64_t height = 300;
};

/// What TensorBoard's slider does: an exponential mean with this weight from 0 to below 1, without a bias at the
/// beginning. Values that are not finite stay and do not count.
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

// Line charts as an SVG picture that stands alone.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "monitor/curves/scalars.h"

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

struct SvgOptions {
  int64_t columns = 2;  ///< charts beside each other
  int64_t width = 480;  ///< of a chart, in pixels
  int64_t height = 300;
};

/// The charts in a grid. Long lines are thinned to what a picture of this width can show: the least and the greatest
/// value of each column of pixels stay. Texts are escaped.
std::string draw_svg(const std::vector<Chart>& charts, const SvgOptions& options = {});

/// What TensorBoard's slider does: an exponential mean with this weight from 0 to below 1, without a bias at the
/// beginning. Values that are not finite stay and do not count.
std::vector<double> smoothed(const std::vector<double>& values, double weight);

}  // namespace ddp::curves

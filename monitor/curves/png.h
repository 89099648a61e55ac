// Line charts as a PNG picture.
#pragma once

#include <string>
#include <vector>

#include "monitor/curves/chart.h"

namespace ddp::curves {

/// The charts in a grid, as draw_charts() lays them out, with `scale` pixels for each of the options'. Throws
/// std::invalid_argument when that makes more pixels than one would look at.
std::string draw_png(const std::vector<Chart>& charts, const ChartOptions& options = {}, double scale = 2);

}  // namespace ddp::curves

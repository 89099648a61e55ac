// Line charts as pixels, and as a PNG picture, drawn by the library cairo.
#pragma once

#include <string>
#include <vector>

#include <ddprun/monitor/summary_values.h>

#include "monitor/curves/chart.h"

namespace ddp::curves {

/// The charts in a grid, as draw_charts() lays them out, with `scale` pixels for each of the options'. Throws
/// std::invalid_argument when that makes more pixels than one would look at, and MissingLibrary.
Bitmap draw_bitmap(const std::vector<Chart>& charts, const ChartOptions& options = {}, double scale = 2);
/// The same as a PNG file.
std::string draw_png(const std::vector<Chart>& charts, const ChartOptions& options = {}, double scale = 2);

}  // namespace ddp::curves

// Draws line charts as bitmaps and as PNG images, with the library cairo.
#pragma once

#include <string>
#include <vector>

#include <ddprun/monitor/summary_values.h>

#include "monitor/curves/chart.h"

namespace ddp::curves {

/// Draws the charts in a grid, as draw_charts() does. The image has `scale` times as many pixels as `options` specify,
/// in width and height. Throws std::invalid_argument if the image would be too large to be useful, and MissingLibrary.
Bitmap draw_bitmap(const std::vector<Chart>& charts, const ChartOptions& options = {}, double scale = 2);
/// Does the same, but returns a PNG file.
std::string draw_png(const std::vector<Chart>& charts, const ChartOptions& options = {}, double scale = 2);

}  // namespace ddp::curves

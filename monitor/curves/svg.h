// Draws line charts as an SVG image that needs no other files.
#pragma once

#include <string>
#include <vector>

#include "monitor/curves/chart.h"

namespace ddp::curves {

/// Draws the charts in a grid, as draw_charts() does. Texts are escaped.
std::string draw_svg(const std::vector<Chart>& charts, const ChartOptions& options = {});

}  // namespace ddp::curves

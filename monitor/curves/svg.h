// Line charts as an SVG picture that stands alone.
#pragma once

#include <string>
#include <vector>

#include "monitor/curves/chart.h"

namespace ddp::curves {

/// The charts in a grid, as draw_charts() lays them out. Texts are escaped.
std::string draw_svg(const std::vector<Chart>& charts, const ChartOptions& options = {});

}  // namespace ddp::curves

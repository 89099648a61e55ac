// Where everything of a picture of charts stands.
#pragma once

#include <cstdint>
#include <vector>

#include "monitor/curves/canvas.h"
#include "monitor/curves/chart.h"

namespace ddp::curves {

/// In pixels.
struct PictureSize {
  int64_t width = 0;
  int64_t height = 0;
};

PictureSize picture_size(const std::vector<Chart>& charts, const ChartOptions& options);

/// Draws the charts in a grid: title, curves, axes, and below them the legend, where lines of the same label have the
/// same colour in all charts. Long lines are thinned to what a picture of this width can show: the least and the
/// greatest value of each column of pixels stay.
void draw_charts(const std::vector<Chart>& charts, const ChartOptions& options, Canvas& canvas);

}  // namespace ddp::curves

// The layout of an image of charts.
#pragma once

#include <cstdint>
#include <vector>

#include "monitor/curves/canvas.h"
#include "monitor/curves/chart.h"

namespace ddp::curves {

/// A size in pixels.
struct PictureSize {
  int64_t width = 0;
  int64_t height = 0;
};

PictureSize picture_size(const std::vector<Chart>& charts, const ChartOptions& options);

/// Draws the charts in a grid. Each has a title, curves, axes and, below them, a legend. Lines with the same label have
/// the same colour in all charts. Long lines are reduced to what an image of this width can show: the minimum and
/// maximum of each column of pixels are kept.
void draw_charts(const std::vector<Chart>& charts, const ChartOptions& options, Canvas& canvas);

}  // namespace ddp::curves

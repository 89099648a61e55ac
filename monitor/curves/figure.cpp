#include "ddprun/monitor/figure.h"

#include <cstdio>
#include <stdexcept>
#include <utility>

#include <ddprun/monitor/summary_writer.h>

#include "monitor/curves/cairo.h"
#include "monitor/curves/chart.h"
#include "monitor/curves/pixels.h"

namespace ddp {
namespace {

constexpr int64_t kMinSide = 150;
constexpr int64_t kMaxSidePixels = 4096;

}  // namespace

Bitmap Figure::draw() const {
  for (const int64_t side : {width, height}) {
    if (side < kMinSide || side > kMaxSidePixels) {
      throw std::invalid_argument("expected sides of a figure from 150 to 4096 pixels, got " + std::to_string(width) +
                                  "x" + std::to_string(height));
    }
  }
  curves::Chart chart{.title = title, .x_label = x_label};
  for (const FigureLine& line : lines) {
    if (line.x.size() != line.y.size()) {
      throw std::invalid_argument("the figure's line '" + line.label + "' has " + std::to_string(line.x.size()) +
                                  " x and " + std::to_string(line.y.size()) + " y: expected the same number of both");
    }
    chart.lines.push_back({.label = line.label, .x = line.x, .y = line.y});
  }
  // Drawn in its final size, because TensorBoard does not scale images.
  return curves::draw_bitmap({chart}, {.columns = 1, .width = width, .height = height}, 1);
}

void SummaryWriter::add_figure(std::string_view tag, const Figure& figure, int64_t step) {
  if (!is_active()) return;
  try {
    add_bitmap(tag, figure.draw(), step);
  } catch (const curves::MissingLibrary& error) {
    // If cairo is missing, the training must continue without figures.
    if (!std::exchange(has_warned_, true)) std::fprintf(stderr, "figures are not written: %s\n", error.what());
  }
}

}  // namespace ddp

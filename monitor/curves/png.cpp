#include "monitor/curves/png.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "monitor/curves/canvas.h"
#include "monitor/curves/layout.h"
#include "monitor/curves/raster.h"
#include "monitor/curves/stroke_font.h"

namespace ddp::curves {
namespace {

constexpr int64_t kMostSide = 32'768;
constexpr int64_t kMostPixels = int64_t{1} << 27;
/// Width of the letters' lines, as a part of the font's size.
constexpr double kPen = 0.09;
constexpr double kBoldPen = 0.14;

class PixelCanvas : public Canvas {
 public:
  PixelCanvas(int64_t width, int64_t height, double scale) : raster_(width, height), scale_(scale) {}

  void rule(Spot from, Spot to, Colour colour) override {
    const auto thickness = std::max<int64_t>(1, std::lround(scale_));
    const auto left = static_cast<int64_t>(std::floor(from.x * scale_));
    const auto top = static_cast<int64_t>(std::floor(from.y * scale_));
    const auto right = static_cast<int64_t>(std::floor(to.x * scale_));
    const auto bottom = static_cast<int64_t>(std::floor(to.y * scale_));
    // Whole pixels: smooth edges would make it wider and fainter.
    raster_.fill(std::min(left, right), std::min(top, bottom), std::max(left, right) + thickness,
                 std::max(top, bottom) + thickness, colour);
  }

  void lines(const std::vector<Polyline>& pieces, const LineStyle& style) override {
    const std::vector<Polyline> parts = style.dashes.empty() ? pieces : dashed(pieces, style.dashes);
    raster_.stroke(scaled(parts, {0, 0}), style.width * scale_, style.colour);
  }

  void dot(Spot centre, double radius, Colour colour) override {
    raster_.stroke(scaled({{centre}}, {0, 0}), 2 * radius * scale_, colour);
  }

  void text(Spot place, const TextStyle& style, const std::string& text) override {
    const double width = text_width(text, kFontSize);
    if (style.anchor == Anchor::kMiddle) place.x -= width / 2;
    if (style.anchor == Anchor::kEnd) place.x -= width;
    raster_.stroke(scaled(text_strokes(text, kFontSize), place), kFontSize * (style.bold ? kBoldPen : kPen) * scale_,
                   style.colour);
  }

  const Bitmap& bitmap() const { return raster_.bitmap(); }

 private:
  std::vector<Polyline> scaled(std::vector<Polyline> pieces, Spot place) const {
    for (Polyline& piece : pieces) {
      for (Spot& spot : piece) spot = {(spot.x + place.x) * scale_, (spot.y + place.y) * scale_};
    }
    return pieces;
  }

  Raster raster_;
  double scale_;
};

}  // namespace

Bitmap draw_bitmap(const std::vector<Chart>& charts, const ChartOptions& options, double scale) {
  const PictureSize size = picture_size(charts, options);
  const auto width = static_cast<int64_t>(std::ceil(static_cast<double>(size.width) * scale));
  const auto height = static_cast<int64_t>(std::ceil(static_cast<double>(size.height) * scale));
  if (width > kMostSide || height > kMostSide || width * height > kMostPixels) {
    throw std::invalid_argument("a PNG picture of " + std::to_string(width) + "x" + std::to_string(height) +
                                " pixels is too large: choose fewer curves (--tag), smaller charts or a smaller "
                                "--scale, or SVG");
  }
  PixelCanvas canvas(width, height, scale);
  draw_charts(charts, options, canvas);
  return canvas.bitmap();
}

std::string draw_png(const std::vector<Chart>& charts, const ChartOptions& options, double scale) {
  return encode_png(draw_bitmap(charts, options, scale));
}

}  // namespace ddp::curves

// Lines and areas on a grid of pixels, with smooth edges.
#pragma once

#include <cstdint>
#include <vector>

#include <ddprun/monitor/images.h>

#include "monitor/curves/canvas.h"

namespace ddp::curves {

/// A picture of pixels, white at first. What lies outside of it is cut off. Places are in pixels; (0, 0) is the upper
/// left corner of the first one.
class Raster {
 public:
  Raster(int64_t width, int64_t height);

  /// Lines `width` wide with round ends and corners, of one colour all over, also where they cross. A piece of one spot
  /// is a dot.
  void stroke(const std::vector<Polyline>& pieces, double width, Colour colour);
  /// A rectangle of whole pixels.
  void fill(int64_t left, int64_t top, int64_t right, int64_t bottom, Colour colour);

  const Bitmap& bitmap() const { return bitmap_; }

 private:
  void blend(int64_t x, int64_t y, float cover, Colour colour);

  Bitmap bitmap_;
};

/// The parts of the lines that dashes leave: lengths of line and gap in turns, beginning with a line.
std::vector<Polyline> dashed(const std::vector<Polyline>& pieces, const std::vector<double>& lengths);

}  // namespace ddp::curves

// The interface for drawing charts, implemented for SVG images and for bitmaps.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ddp::curves {

/// A point in pixels, measured rightwards and downwards from the upper left corner of the image.
struct PixelPoint {
  double x = 0;
  double y = 0;
};

/// At least two points, connected by straight lines.
using Polyline = std::vector<PixelPoint>;

struct Colour {
  uint8_t red = 0;
  uint8_t green = 0;
  uint8_t blue = 0;
  bool operator==(const Colour&) const = default;
};

enum class Anchor { kStart, kMiddle, kEnd };

struct TextStyle {
  Anchor anchor = Anchor::kStart;  ///< the part of the text that is at its position
  Colour colour{};
  bool bold = false;
};

struct LineStyle {
  Colour colour{};
  double width = 1.5;
  std::vector<double> dashes{};  ///< alternating lengths of dashes and gaps; empty for a solid line
};

/// The font size of all texts, in pixels.
inline constexpr double kFontSize = 11;

class Canvas {
 public:
  Canvas() = default;
  virtual ~Canvas() = default;
  Canvas(const Canvas&) = delete;
  Canvas& operator=(const Canvas&) = delete;

  /// Draws a thin horizontal or vertical line.
  virtual void rule(PixelPoint from, PixelPoint to, Colour colour) = 0;
  /// Draws lines with round ends and corners.
  virtual void lines(const std::vector<Polyline>& pieces, const LineStyle& style) = 0;
  virtual void dot(PixelPoint centre, double radius, Colour colour) = 0;
  /// Draws a UTF-8 text. The left end, the middle or the right end of its baseline is at `place`.
  virtual void text(PixelPoint place, const TextStyle& style, const std::string& text) = 0;
};

}  // namespace ddp::curves

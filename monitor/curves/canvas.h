// What charts are drawn on: an SVG picture or pixels.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ddp::curves {

/// In pixels from the picture's upper left corner, rightwards and downwards.
struct PixelPoint {
  double x = 0;
  double y = 0;
};

/// Points joined by straight lines; at least two.
using Polyline = std::vector<PixelPoint>;

struct Colour {
  uint8_t red = 0;
  uint8_t green = 0;
  uint8_t blue = 0;
  bool operator==(const Colour&) const = default;
};

enum class Anchor { kStart, kMiddle, kEnd };

struct TextStyle {
  Anchor anchor = Anchor::kStart;  ///< which part of the text is at its place
  Colour colour{};
  bool bold = false;
};

struct LineStyle {
  Colour colour{};
  double width = 1.5;
  std::vector<double> dashes{};  ///< lengths of line and gap in turns; empty: one line
};

/// Size of all texts, in pixels.
inline constexpr double kFontSize = 11;

class Canvas {
 public:
  Canvas() = default;
  virtual ~Canvas() = default;
  Canvas(const Canvas&) = delete;
  Canvas& operator=(const Canvas&) = delete;

  /// A thin line, horizontal or vertical.
  virtual void rule(PixelPoint from, PixelPoint to, Colour colour) = 0;
  /// Round ends and corners.
  virtual void lines(const std::vector<Polyline>& pieces, const LineStyle& style) = 0;
  virtual void dot(PixelPoint centre, double radius, Colour colour) = 0;
  /// UTF-8 with the left end of its base line, its middle or its right end at `place`.
  virtual void text(PixelPoint place, const TextStyle& style, const std::string& text) = 0;
};

}  // namespace ddp::curves

// Estimates the width of a text in an image if the font is not known.
#pragma once

#include <string_view>

#include "base/text_width.h"

namespace ddp::curves {

/// Returns the width of a UTF-8 text in pixels, estimated for common sans-serif fonts, because the viewer of an SVG
/// image chooses the font.
inline double text_width(std::string_view text, double font_size) {
  // Relative to the font size: the width of digits is 0.56 in Arial and 0.64 in DejaVu Sans.
  constexpr double kPerColumn = 0.6;
  return static_cast<double>(text_columns(text)) * kPerColumn * font_size;
}

}  // namespace ddp::curves

// How wide a text is in a picture whose font is not known.
#pragma once

#include <string_view>

#include "base/text_width.h"

namespace ddp::curves {

/// Width of a UTF-8 text in pixels, estimated for usual sans-serif fonts: the viewer of an SVG picture chooses the
/// font.
inline double text_width(std::string_view text, double font_size) {
  constexpr double kPerColumn = 0.6;  // of the font's size: digits have 0.56 in Arial and 0.64 in DejaVu Sans
  return static_cast<double>(text_columns(text)) * kPerColumn * font_size;
}

}  // namespace ddp::curves

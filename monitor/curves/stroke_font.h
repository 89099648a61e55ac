// A font made of lines, for pictures of pixels: no font file is needed, and it scales.
#pragma once

#include <string_view>
#include <vector>

#include "monitor/curves/canvas.h"

namespace ddp::curves {

/// Width of a text in pixels. The letters are about as wide as those of usual sans-serif fonts.
double text_width(std::string_view text, double font_size);

/// The lines of a text whose base line begins at (0, 0). Latin letters with their accents, digits, signs and a few
/// arrows and Greek letters are there; for other characters stands a box.
std::vector<Polyline> text_strokes(std::string_view text, double font_size);

}  // namespace ddp::curves

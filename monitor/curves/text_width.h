// How wide a text is in a picture whose font is not known.
#pragma once

#include <string_view>

namespace ddp::curves {

/// Width of a UTF-8 text in pixels, estimated for usual sans-serif fonts: the viewer of an SVG picture chooses the
/// font.
double text_width(std::string_view text, double font_size);

}  // namespace ddp::curves

// The shapes of the letters of the stroke font.
//
// A shape is a row of commands in a grid whose origin is the left end of the base line, rightwards and upwards:
//   M x y                      puts the pen down anew
//   L x y                      draws a line
//   A x y rx ry from to        draws an arc of the ellipse around (x, y), between two angles in degrees, counted from
//   the
//                              right counter-clockwise; a line leads to its beginning when the pen is down
// Capitals are 14 high, small letters 10 and with an ascender 14.5; descenders reach to -4.
#pragma once

#include <string_view>

namespace ddp::curves {

/// Size of the font in the grid's units.
inline constexpr double kUnitsPerEm = 19.5;

struct Glyph {
  char32_t code = 0;
  double advance = 0;  ///< to the next letter's origin
  std::string_view shape{};
};

/// A letter that is another one with a mark over or under it.
struct Accented {
  char32_t code = 0;
  char32_t base = 0;
  char32_t mark = 0;  ///< a combining character
};

/// Null where the font has no such letter.
const Glyph* find_glyph(char32_t code);
const Accented* find_accented(char32_t code);
/// A mark around x = 0, for small letters; over capitals it stands 4 higher. Null for other characters.
const Glyph* find_mark(char32_t code);

}  // namespace ddp::curves

#include "monitor/curves/stroke_font.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numbers>

#include "base/text_width.h"
#include "base/utf8.h"
#include "monitor/curves/glyphs.h"

namespace ddp::curves {
namespace {

constexpr double kBoxWidth = 12;     // of a character that the font does not have
constexpr double kCapitalMarks = 4;  // how much higher a mark stands over a capital
constexpr double kSmallHeight = 10;
constexpr double kDegreesPerPoint = 12;  // of an arc: a tenth of a pixel beside the ellipse at most

/// Reads the next number of a shape.
double number(std::string_view& shape) {
  shape.remove_prefix(std::min(shape.find_first_not_of(' '), shape.size()));
  double value = 0;
  const auto [end, error] = std::from_chars(shape.data(), shape.data() + shape.size(), value);
  shape.remove_prefix(static_cast<size_t>(end - shape.data()));
  return value;
}

void add_arc(std::string_view& shape, Polyline& piece) {
  const Spot centre{number(shape), number(shape)};
  const Spot radius{number(shape), number(shape)};
  const double from = number(shape);
  const double to = number(shape);
  const int parts = std::max(1, static_cast<int>(std::ceil(std::abs(to - from) / kDegreesPerPoint)));
  for (int i = 0; i <= parts; ++i) {
    const double angle = (from + (to - from) * i / parts) * std::numbers::pi / 180;
    piece.push_back({centre.x + radius.x * std::cos(angle), centre.y + radius.y * std::sin(angle)});
  }
}

/// The shape's lines in the font's grid.
std::vector<Polyline> pieces_of(std::string_view shape) {
  std::vector<Polyline> pieces;
  while (!shape.empty()) {
    const char command = shape.front();
    shape.remove_prefix(1);
    if (command == ' ') continue;
    if (command == 'M' || pieces.empty()) pieces.emplace_back();
    if (command == 'A') {
      add_arc(shape, pieces.back());
    } else {
      const double x = number(shape);
      pieces.back().push_back({x, number(shape)});
    }
  }
  return pieces;
}

std::vector<Polyline> moved(std::vector<Polyline> pieces, double x, double y) {
  for (Polyline& piece : pieces) {
    for (Spot& spot : piece) spot = {spot.x + x, spot.y + y};
  }
  return pieces;
}

double advance_of(char32_t code) {
  if (find_mark(code) != nullptr) return 0;
  if (const Accented* accented = find_accented(code)) code = accented->base;
  if (const Glyph* glyph = find_glyph(code)) return glyph->advance;
  return kBoxWidth * column_width(code);
}

/// The letter with its left end at x = 0; a mark over the letter `before`, which ends there.
std::vector<Polyline> letter_pieces(char32_t code, char32_t before) {
  if (const Glyph* mark = find_mark(code)) {
    const bool is_below = code == 0x327 || code == 0x328;  // cedilla and ogonek
    return moved(pieces_of(mark->shape), -advance_of(before) / 2, before <= 'Z' && !is_below ? kCapitalMarks : 0);
  }
  if (const Accented* accented = find_accented(code)) {
    std::vector<Polyline> pieces = letter_pieces(accented->base, 0);
    const double advance = advance_of(accented->base);
    for (Polyline& piece : moved(letter_pieces(accented->mark, accented->base), advance, 0)) pieces.push_back(piece);
    return pieces;
  }
  if (const Glyph* glyph = find_glyph(code)) return pieces_of(glyph->shape);
  const double width = kBoxWidth * column_width(code);
  if (width == 0) return {};
  return {{{1.5, 0}, {1.5, kSmallHeight + 4}, {width - 1.5, kSmallHeight + 4}, {width - 1.5, 0}, {1.5, 0}}};
}

}  // namespace

double text_width(std::string_view text, double font_size) {
  double width = 0;
  while (!text.empty()) {
    const detail::Utf8Character character = detail::first_character(text);
    width += advance_of(character.code);
    text.remove_prefix(character.length);
  }
  return width * font_size / kUnitsPerEm;
}

std::vector<Polyline> text_strokes(std::string_view text, double font_size) {
  const double scale = font_size / kUnitsPerEm;
  std::vector<Polyline> strokes;
  double left = 0;
  char32_t before = 0;
  while (!text.empty()) {
    const detail::Utf8Character character = detail::first_character(text);
    for (Polyline& piece : letter_pieces(character.code, before)) {
      for (Spot& spot : piece) spot = {(left + spot.x) * scale, -spot.y * scale};
      strokes.push_back(std::move(piece));
    }
    left += advance_of(character.code);
    before = character.code;
    text.remove_prefix(character.length);
  }
  return strokes;
}

}  // namespace ddp::curves

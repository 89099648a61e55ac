#include "monitor/curves/text_width.h"

#include "base/text_width.h"

namespace ddp::curves {

double text_width(std::string_view text, double font_size) {
  constexpr double kPerColumn = 0.6;  // of the font's size: digits have 0.56 in Arial and 0.64 in DejaVu Sans
  return static_cast<double>(text_columns(text)) * kPerColumn * font_size;
}

}  // namespace ddp::curves

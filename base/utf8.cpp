#include "base/utf8.h"

#include <cstdint>

namespace ddp::detail {
namespace {

// Well-formed characters of several bytes, table 3-7 of the Unicode standard: the first byte, the second, and how many
// there are. Those behind the second are 0x80 to 0xBF.
struct Form {
  std::uint8_t first_low, first_high;
  std::uint8_t second_low, second_high;
  std::size_t length;
};
constexpr Form kForms[] = {
    {0xC2, 0xDF, 0x80, 0xBF, 2}, {0xE0, 0xE0, 0xA0, 0xBF, 3}, {0xE1, 0xEC, 0x80, 0xBF, 3}, {0xED, 0xED, 0x80, 0x9F, 3},
    {0xEE, 0xEF, 0x80, 0xBF, 3}, {0xF0, 0xF0, 0x90, 0xBF, 4}, {0xF1, 0xF3, 0x80, 0xBF, 4}, {0xF4, 0xF4, 0x80, 0x8F, 4},
};

}  // namespace

std::size_t utf8_length(std::string_view text) noexcept {
  const auto is_in = [&](std::size_t i, std::uint8_t low, std::uint8_t high) {
    return i < text.size() && static_cast<std::uint8_t>(text[i]) >= low && static_cast<std::uint8_t>(text[i]) <= high;
  };
  if (is_in(0, 0, 0x7F)) return 1;
  for (const Form& form : kForms) {
    if (!is_in(0, form.first_low, form.first_high)) continue;
    bool valid = is_in(1, form.second_low, form.second_high);
    for (std::size_t i = 2; i < form.length; ++i) valid = valid && is_in(i, 0x80, 0xBF);
    return valid ? form.length : 0;
  }
  return 0;
}

}  // namespace ddp::detail

#include "base/rank_prefix.h"

#include <array>
#include <charconv>
#include <cmath>
#include <exception>

#include <ddprun/base/rank_info.h>

namespace ddp {

std::string rank_prefix() {
  try {
    return who(rank_info_from_environment()) + ": ";
  } catch (const std::exception&) {
    return "";
  }
}

// repr(): the fewest digits that give the number again, with an exponent below 1e-4 and from 1e16 on.
std::string number_text(double value) {
  if (std::isnan(value)) return "nan";
  const double size = std::abs(value);
  const bool is_plain = size == 0 || (size >= 1e-4 && size < 1e16);
  std::array<char, 32> buffer{};
  const auto* end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                  is_plain ? std::chars_format::fixed : std::chars_format::scientific)
                        .ptr;
  std::string text(buffer.data(), static_cast<size_t>(end - buffer.data()));
  if (is_plain && text.find('.') == std::string::npos) text += ".0";
  return text;
}

}  // namespace ddp

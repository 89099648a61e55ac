#include "checkpoint/core/printable_text.h"

#include <algorithm>

#include "base/utf8.h"

namespace ddp {
namespace {

// U+0080 to U+009F begin commands to a terminal as well.
bool is_control(std::string_view character) {
  const auto first = static_cast<unsigned char>(character[0]);
  const bool is_c1 = character.size() == 2 && first == 0xc2 && static_cast<unsigned char>(character[1]) < 0xa0;
  return first < 0x20 || first == 0x7f || is_c1;
}

}  // namespace

std::string printable_text(std::string_view text, std::string_view kept) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string result;
  while (!text.empty()) {
    const auto length = detail::utf8_length(text);
    const auto character = text.substr(0, std::max<size_t>(length, 1));
    const bool is_kept = length == 1 && kept.find(character[0]) != std::string_view::npos;
    if (!is_kept && (length == 0 || is_control(character))) {
      for (const char byte : character) {
        result += "\\x";
        result += kHex[static_cast<unsigned char>(byte) >> 4];
        result += kHex[static_cast<unsigned char>(byte) & 15];
      }
    } else {
      result += character;
    }
    text.remove_prefix(character.size());
  }
  return result;
}

}  // namespace ddp

#include "monitor/utf8.h"

#include <cstddef>
#include <cstdint>

#include "base/utf8.h"

namespace ddp {

Utf8Character first_character(std::string_view text) {
  const size_t length = detail::utf8_length(text);
  if (length == 0) return {.code = 0xFFFD, .length = 1};
  const auto byte = [&](size_t i) { return static_cast<char32_t>(static_cast<uint8_t>(text[i])); };
  if (length == 1) return {.code = byte(0), .length = 1};
  char32_t code = byte(0) & (0x7FU >> length);
  for (size_t i = 1; i < length; ++i) code = code << 6 | (byte(i) & 0x3F);
  return {.code = code, .length = length};
}

std::string valid_utf8(std::string_view text) {
  std::string valid;
  valid.reserve(text.size());
  while (!text.empty()) {
    const size_t length = detail::utf8_length(text);
    valid += length == 0 ? std::string_view("\xEF\xBF\xBD") : text.substr(0, length);
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return valid;
}

}  // namespace ddp

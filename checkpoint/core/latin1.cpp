#include "checkpoint/core/latin1.h"

#include "base/utf8.h"

namespace ddp {

std::string latin1_to_utf8(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x80) text += static_cast<char>(0xc0 | (byte >> 6));
    text += static_cast<char>(byte < 0x80 ? byte : 0x80 | (byte & 0x3f));
  }
  return text;
}

std::optional<std::string> utf8_to_latin1(std::string_view text) {
  std::string bytes;
  bytes.reserve(text.size());
  while (!text.empty()) {
    const auto length = detail::utf8_length(text);
    const auto first = static_cast<unsigned char>(text.front());
    if (length == 1) {
      bytes += text.front();
    } else if (length == 2 && first <= 0xc3) {
      bytes += static_cast<char>((first & 3) << 6 | (static_cast<unsigned char>(text[1]) & 0x3f));
    } else {
      return std::nullopt;
    }
    text.remove_prefix(length);
  }
  return bytes;
}

}  // namespace ddp

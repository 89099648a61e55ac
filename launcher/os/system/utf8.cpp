#include "launcher/os/system/utf8.h"

#include <algorithm>

#include "base/utf8.h"

namespace launcher {
namespace {

bool is_control(std::string_view character) {
  const auto first = static_cast<unsigned char>(character.front());
  if (character.size() == 1) return first < 0x20 || first == 0x7f;
  return character.size() == 2 && first == 0xc2 && static_cast<unsigned char>(character[1]) < 0xa0;
}

}  // namespace

int utf8_length(char first) {
  const auto byte = static_cast<unsigned char>(first);
  if (byte >= 0xc2 && byte < 0xe0) return 2;
  if (byte >= 0xe0 && byte < 0xf0) return 3;
  if (byte >= 0xf0 && byte < 0xf5) return 4;
  return 1;
}

bool is_character(std::string_view bytes) {
  return !bytes.empty() && ddp::detail::utf8_length(bytes) == bytes.size();
}

std::size_t shown_character(std::string_view text) {
  const std::size_t length = ddp::detail::utf8_length(text);
  return length > 0 && !is_control(text.substr(0, length)) ? length : 0;
}

std::string printable(std::string_view text) {
  return ddp::detail::shown_text(text);
}

std::string_view beginning(std::string_view text, std::size_t most) {
  if (text.size() <= most) return text;
  // Finds the last character before the end; it is left out if it extends beyond the end.
  for (std::size_t back = 1; back <= std::min<std::size_t>(3, most); ++back) {
    const auto length = static_cast<std::size_t>(utf8_length(text[most - back]));
    if (length > back && is_character(text.substr(most - back, length))) return text.substr(0, most - back);
  }
  return text.substr(0, most);
}

}  // namespace launcher

#include "launcher/system/utf8.h"

#include <algorithm>

#include "base/utf8.h"

namespace launcher {
namespace {

bool is_control(std::string_view character) {
  const auto first = static_cast<unsigned char>(character.front());
  if (character.size() == 1) return first < 0x20 || first == 0x7f;
  return character.size() == 2 && first == 0xc2 && static_cast<unsigned char>(character[1]) < 0xa0;
}

// What the second byte rules out: too long a form, half of a surrogate pair, and what is beyond the last character.
bool may_follow(char first, char second) {
  const auto byte = static_cast<unsigned char>(second);
  switch (static_cast<unsigned char>(first)) {
    case 0xe0:
      return byte >= 0xa0;
    case 0xed:
      return byte < 0xa0;
    case 0xf0:
      return byte >= 0x90;
    case 0xf4:
      return byte < 0x90;
    default:
      return true;
  }
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
  if (bytes.empty() || static_cast<std::size_t>(utf8_length(bytes.front())) != bytes.size()) return false;
  if (bytes.size() == 1) return static_cast<unsigned char>(bytes.front()) < 0x80;
  if (!may_follow(bytes[0], bytes[1])) return false;
  return std::all_of(bytes.begin() + 1, bytes.end(),
                     [](char c) { return (static_cast<unsigned char>(c) & 0xc0U) == 0x80; });
}

std::size_t shown_character(std::string_view text) {
  if (text.empty()) return 0;
  const std::string_view character = text.substr(0, static_cast<std::size_t>(utf8_length(text.front())));
  return is_character(character) && !is_control(character) ? character.size() : 0;
}

std::string printable(std::string_view text) {
  return ddp::detail::shown_text(text);
}

std::string_view beginning(std::string_view text, std::size_t most) {
  if (text.size() <= most) return text;
  // The character that begins last before the end, if it goes beyond.
  for (std::size_t back = 1; back <= std::min<std::size_t>(3, most); ++back) {
    const auto length = static_cast<std::size_t>(utf8_length(text[most - back]));
    if (length > back && is_character(text.substr(most - back, length))) return text.substr(0, most - back);
  }
  return text.substr(0, most);
}

}  // namespace launcher

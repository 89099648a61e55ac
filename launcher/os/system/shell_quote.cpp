#include "launcher/os/system/shell_quote.h"

#include <array>
#include <cctype>
#include <cstdio>

#include "launcher/os/system/utf8.h"

namespace launcher {
namespace {

// True for a character that a shell does not interpret.
bool is_plain(std::string_view character) {
  constexpr std::string_view kPlain = "_-+=./:,@%";
  return character.size() > 1 || std::isalnum(static_cast<unsigned char>(character.front())) != 0 ||
         kPlain.find(character.front()) != std::string_view::npos;
}

// Returns the first character of `text`; one byte if a terminal would interpret it.
std::string_view first_of(std::string_view text, bool& is_shown) {
  const std::size_t length = shown_character(text);
  is_shown = length > 0;
  return text.substr(0, is_shown ? length : 1);
}

std::string octal(char byte) {
  std::array<char, 5> escaped{};
  std::snprintf(escaped.data(), escaped.size(), "\\%03o", static_cast<unsigned>(static_cast<unsigned char>(byte)));
  return escaped.data();
}

}  // namespace

std::string shell_quote(std::string_view word) {
  bool is_all_plain = !word.empty();
  bool is_all_shown = true;
  bool is_shown = false;
  for (std::string_view left = word; !left.empty();) {
    const std::string_view character = first_of(left, is_shown);
    is_all_shown = is_all_shown && is_shown;
    is_all_plain = is_all_plain && is_shown && is_plain(character);
    left.remove_prefix(character.size());
  }
  if (is_all_plain) return std::string(word);
  std::string quoted = is_all_shown ? "'" : "$'";
  for (std::string_view left = word; !left.empty();) {
    const std::string_view character = first_of(left, is_shown);
    if (!is_shown) {
      // A control character of eight bits has two bytes; both are escaped, as the second one cannot be shown alone.
      quoted += octal(character.front());
    } else if (character == "'") {
      quoted += is_all_shown ? "'\\''" : "\\'";
    } else if (character == "\\" && !is_all_shown) {
      quoted += "\\\\";
    } else {
      quoted += character;
    }
    left.remove_prefix(character.size());
  }
  return quoted + "'";
}

}  // namespace launcher

// The number of terminal columns of a character. Terminals show UTF-8 whatever the locale of a program is.
#pragma once

#include <locale.h>
#include <wchar.h>

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>

#include "launcher/os/system/utf8.h"

namespace launcher {

inline std::uint32_t code_point(std::string_view character) {
  const auto first = static_cast<unsigned char>(character.front());
  if (character.size() == 1) return first;
  std::uint32_t code = first & (0x7fU >> character.size());
  for (const char c : character.substr(1)) code = code << 6U | (static_cast<unsigned char>(c) & 0x3fU);
  return code;
}

class CharacterWidth {
 public:
  CharacterWidth() = default;
  ~CharacterWidth() {
    if (locale_ != nullptr) ::freelocale(locale_);
  }
  CharacterWidth(const CharacterWidth&) = delete;
  CharacterWidth& operator=(const CharacterWidth&) = delete;

  // The width of one UTF-8 character: 0 (it joins the one before), 1 or 2; 1 for bytes that are not a character.
  int of(std::string_view character) const {
    if (character.size() < 2 || !is_character(character)) return 1;
    if (!std::exchange(is_locale_created_, true)) {
      locale_ = ::newlocale(LC_CTYPE_MASK, "C.UTF-8", static_cast<locale_t>(nullptr));
      if (locale_ == nullptr) locale_ = ::newlocale(LC_CTYPE_MASK, "", static_cast<locale_t>(nullptr));
    }
    if (locale_ == nullptr) return 1;
    const locale_t before = ::uselocale(locale_);
    const int width = ::wcwidth(static_cast<wchar_t>(code_point(character)));
    ::uselocale(before);
    return width < 0 ? 1 : std::min(width, 2);
  }

 private:
  // A locale whose wcwidth() knows all characters, or null. It is created when it is needed, because most jobs are not
  // at a terminal, and most characters are ASCII.
  mutable locale_t locale_ = nullptr;
  mutable bool is_locale_created_ = false;
};

}  // namespace launcher

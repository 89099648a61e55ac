// How many columns of a terminal a character takes. Terminals show UTF-8 whatever the locale of a program is.
#pragma once

#include <locale.h>

#include <string_view>

namespace launcher {

class CharacterWidth {
 public:
  CharacterWidth();
  ~CharacterWidth();
  CharacterWidth(const CharacterWidth&) = delete;
  CharacterWidth& operator=(const CharacterWidth&) = delete;

  // Of one character in UTF-8: 0 (joins the one before), 1 or 2; 1 for what is no character.
  int of(std::string_view character) const;

 private:
  locale_t locale_;  // whose wcwidth() knows all characters; (locale_t)0 where there is none
};

// Bytes of the UTF-8 character that begins with `first`; 1 for a byte with which none begins. Pure.
int utf8_length(char first);
// True when `bytes` is one whole character. Pure.
bool is_character(std::string_view bytes);

}  // namespace launcher

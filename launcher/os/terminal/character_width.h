// How many columns of a terminal a character takes. Terminals show UTF-8 whatever the locale of a program is.
#pragma once

#include <locale.h>

#include <string_view>

namespace launcher {

class CharacterWidth {
 public:
  CharacterWidth() = default;
  ~CharacterWidth();
  CharacterWidth(const CharacterWidth&) = delete;
  CharacterWidth& operator=(const CharacterWidth&) = delete;

  // Of one character in UTF-8: 0 (joins the one before), 1 or 2; 1 for what is no character.
  int of(std::string_view character) const;

 private:
  // Whose wcwidth() knows all characters; null where there is none. Made when it is needed: most jobs are not at a
  // terminal, and most characters are ASCII.
  mutable locale_t locale_ = nullptr;
  mutable bool is_made_ = false;
};

}  // namespace launcher

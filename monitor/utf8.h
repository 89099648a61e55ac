// Text that a protobuf string field or a terminal may get.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ddp {

/// The text with every byte that is no part of valid UTF-8 replaced by U+FFFD. (One such byte in a tag would make
/// readers refuse the whole event.)
std::string valid_utf8(std::string_view text);

/// A character and the number of bytes that it takes.
struct Utf8Character {
  char32_t code = 0;
  size_t length = 0;
};

/// The first character of a text that is not empty; U+FFFD of one byte where the text is not valid UTF-8.
Utf8Character first_character(std::string_view text);

}  // namespace ddp

// The characters of UTF-8. Standard library only.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ddp::detail {

/// Bytes of the valid character at the front of `text`, or 0. Safe in a signal handler.
std::size_t utf8_length(std::string_view text) noexcept;

/// A character and the number of bytes that it takes.
struct Utf8Character {
  char32_t code = 0;
  std::size_t length = 0;
};

/// The first character of a text that is not empty; U+FFFD of one byte where the text is not valid UTF-8.
Utf8Character first_character(std::string_view text) noexcept;

/// How long `text` is without the beginning of a character at its end whose rest is missing.
std::size_t whole_characters(std::string_view text) noexcept;

/// `text` with U+FFFD for each byte that is not part of valid UTF-8.
std::string valid_utf8(std::string_view text);

/// `text` as a terminal can show it within a line: a blank for each control character and for each one that turns the
/// direction of what follows, U+FFFD for each byte that is not part of valid UTF-8.
std::string shown_text(std::string_view text);

}  // namespace ddp::detail

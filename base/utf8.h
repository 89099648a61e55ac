// UTF-8 characters. Uses only the standard library.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ddp::detail {

/// The length in bytes of the valid character at the start of `text`; 0 if it is invalid. Safe in a signal handler.
std::size_t utf8_length(std::string_view text) noexcept;

/// A character and its length in bytes.
struct Utf8Character {
  char32_t code = 0;
  std::size_t length = 0;
};

/// The first character of a nonempty text; U+FFFD with a length of one byte if the text does not begin with valid
/// UTF-8.
Utf8Character first_character(std::string_view text) noexcept;

/// The length of `text` without an incomplete character at its end.
std::size_t whole_characters(std::string_view text) noexcept;

/// Replaces each byte of `text` that is not valid UTF-8 by U+FFFD.
std::string valid_utf8(std::string_view text);

/// Makes `text` safe for one line of a terminal: control characters and characters that change the text direction
/// become blanks, and each byte that is not valid UTF-8 becomes U+FFFD.
std::string shown_text(std::string_view text);

}  // namespace ddp::detail

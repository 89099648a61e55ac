// UTF-8 as terminals interpret it. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace launcher {

// The number of bytes of a UTF-8 character that begins with `first`; 1 for a byte that begins no character.
int utf8_length(char first);
// True when `bytes` is one whole character.
bool is_character(std::string_view bytes);

// The number of bytes of the first character of `text`; 0 unless a terminal only shows it. A terminal interprets
// control characters of seven or eight bits (U+0080 to U+009F begin sequences, too). Invalid UTF-8 also gives 0.
std::size_t shown_character(std::string_view text);
// `text` as it can be shown, see ddp::detail::shown_text().
std::string printable(std::string_view text);
// Returns the first `most` bytes of `text` at most, without cutting a character.
std::string_view beginning(std::string_view text, std::size_t most);

}  // namespace launcher

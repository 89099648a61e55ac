// UTF-8 as a terminal takes it. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace launcher {

// Bytes of the UTF-8 character that begins with `first`; 1 for a byte with which none begins.
int utf8_length(char first);
// True when `bytes` is one whole character.
bool is_character(std::string_view bytes);

// Bytes of the character with which `text` begins; 0 unless it is one that a terminal just shows: a control
// character of seven or eight bits (U+0080 to U+009F begin sequences too), or what is not UTF-8.
std::size_t shown_character(std::string_view text);
// `text` as it can be shown, see ddp::detail::shown_text().
std::string printable(std::string_view text);
// The beginning of `text`, at most `most` bytes of it; no character is cut.
std::string_view beginning(std::string_view text, std::size_t most);

}  // namespace launcher

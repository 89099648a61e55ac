// Escapes text for troff's man macros, so that no character is an escape or begins a request. Pure.
#pragma once

#include <string>
#include <string_view>

namespace launcher {

// Escapes text in the middle of a line. A "-" becomes a minus sign, which can be copied and searched for, not a hyphen.
// `text` must be ASCII.
std::string roff_escaped(std::string_view text);

// Returns lines of prose, each with a newline at its end, of at most 80 bytes unless a word is longer. Each sentence
// begins a line. Words between backquotes are bold.
std::string roff_prose(std::string_view text);

// The same as one line without a newline, for the term of a list.
std::string roff_term(std::string_view text);

std::string roff_bold(std::string_view text);
std::string roff_italic(std::string_view text);

}  // namespace launcher

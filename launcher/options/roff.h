// Text for troff's man macros, so that it is shown as it is: no character of it is an escape or begins a request. Pure.
#pragma once

#include <string>
#include <string_view>

namespace launcher {

// In the middle of a line. A "-" becomes what can be copied and searched for, not a hyphen. `text` is ASCII.
std::string roff_escaped(std::string_view text);

// Lines of prose, each with a newline at its end, none longer than 80 bytes unless a word is; a sentence begins a line.
// What stands between backquotes is bold.
std::string roff_prose(std::string_view text);

// The same as one line without its newline, for the term of a list.
std::string roff_term(std::string_view text);

std::string roff_bold(std::string_view text);
std::string roff_italic(std::string_view text);

}  // namespace launcher

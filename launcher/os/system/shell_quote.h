// Quotes a word for a shell. Pure.
#pragma once

#include <string>
#include <string_view>

namespace launcher {

// Returns `word` unchanged if a shell does not interpret it, else in quotes. Control characters are written as $'\n'
// and so on, so that the result is one line without effect on a terminal.
std::string shell_quote(std::string_view word);

}  // namespace launcher

// A word as one types it in a shell. Pure.
#pragma once

#include <string>
#include <string_view>

namespace launcher {

// `word` itself where a shell takes it as it is, else in quotes. Control characters as $'\n' and the like, so that the
// result is one line and cannot act on a terminal.
std::string shell_quote(std::string_view word);

}  // namespace launcher

// Writes ddprun's own messages: each is one write to standard error, so lines of several processes do not mix.
#pragma once

#include <string_view>

namespace launcher {

void print_line(std::string_view text);   // "ddprun: <text>\n"
void print_block(std::string_view text);  // as it is, in one write where the kernel allows it

}  // namespace launcher

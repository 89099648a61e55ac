// An errno in words, with the limit of this process that it comes from.
#pragma once

#include <string>

namespace launcher {

// "File too large (limit on the size of files: ulimit -f)"
std::string error_text(int error);

// The same of what fork() answers.
std::string fork_error_text(int error);

}  // namespace launcher

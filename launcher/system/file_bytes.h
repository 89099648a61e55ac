// The whole of a small file that an option names.
#pragma once

#include <string>

namespace launcher {

// Throws LaunchError, which begins with `option` and the path, when the file cannot be read.
std::string file_bytes(const std::string& option, const std::string& path);

}  // namespace launcher

// Reads the whole of a small file that an option names.
#pragma once

#include <cstddef>
#include <string>

namespace launcher {

// Throws LaunchError, which begins with `option` and the path, when the file cannot be read, has more than `most`
// bytes, or is a pipe without data for 10 s (a shell's process substitution is a pipe).
std::string file_bytes(const std::string& option, const std::string& path, std::size_t most);

}  // namespace launcher

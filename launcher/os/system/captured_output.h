// What a short command or a helper process prints.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace launcher {

// Reads from `fd` up to its end, at most 64 KiB; nothing when the end is not reached by `deadline`.
std::optional<std::string> read_to_end(int fd, std::chrono::steady_clock::time_point deadline);

// Runs `file` with `arguments` (argv[0] included), an empty standard input and no standard error; returns its standard
// output. Nothing when it cannot be started, does not end within `timeout` (it is then killed) or ends with a status
// other than 0.
std::optional<std::string> captured_output(const std::string& file, std::vector<std::string> arguments,
                                           std::chrono::milliseconds timeout);

}  // namespace launcher

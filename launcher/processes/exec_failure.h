// Why a program could not be executed, in words: the kernel gives a number only.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace launcher {

// One line: what execve refused with `error` and what to look at. `arguments` and `environment` are what it was given,
// `limit` is how many bytes it takes of both together (ARG_MAX). Pure.
std::string exec_failure_text(const std::string& file, int error, std::span<const std::string> arguments,
                              std::span<const std::string> environment, std::size_t limit);

}  // namespace launcher

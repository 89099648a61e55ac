// Why a program could not be executed, in words: the kernel gives a number only.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace launcher {

// How many bytes execve takes.
struct ExecLimits {
  std::size_t of_both;  // of arguments and environment together, with their ends and the pointers to them
  std::size_t of_one;   // of one argument or variable, with its end
};

// The kernel's, for pages of `page_bytes` and a limit of `stack_bytes` for the stack (ulimit -s). Pure.
ExecLimits exec_limits(std::size_t page_bytes, std::size_t stack_bytes);

// Those of this process, here and now.
ExecLimits exec_limits();

// One line: what execve refused with `error` and what to look at. `arguments` and `environment` are what it was given,
// `cause` what the file's own bytes say against it, or "". Pure.
std::string exec_failure_text(const std::string& file, int error, std::span<const std::string> arguments,
                              std::span<const std::string> environment, const ExecLimits& limits,
                              const std::string& cause = {});

}  // namespace launcher

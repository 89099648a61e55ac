// Converts the command line to Options. Reads the arguments, the PET_ variables and torchrun's other variables.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "launcher/plan/options.h"

namespace launcher {

// The command line does not ask for a job: the caller prints `text` (to standard output when `status` is 0) and exits
// with `status`.
struct ExitRequest {
  int status = 0;
  std::string text;
};

// `arguments` are without argv[0]. The program starts at the first argument that is neither an option nor an option's
// value, or after `--`. From there on every argument is passed to the program unchanged. `commit` is the source
// revision that --version prints.
std::variant<Options, ExitRequest> parse_command_line(std::span<const std::string> arguments,
                                                      std::string_view commit = "unknown");

}  // namespace launcher

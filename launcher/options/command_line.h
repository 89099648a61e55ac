// Command line -> Options. Reads the arguments, the PET_ variables and torchrun's other variables.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "launcher/plan/options.h"

namespace launcher {

// The command line asks for no job: print `text` (to standard output when `status` is 0) and exit with `status`.
struct ExitRequest {
  int status = 0;
  std::string text;
};

// `arguments` without argv[0]. The program starts at the first argument that is neither an option nor an option's
// value, or after `--`; from there on every argument belongs to the program and is passed on untouched.
// `commit` is what --version says of the sources.
std::variant<Options, ExitRequest> parse_command_line(std::span<const std::string> arguments,
                                                      std::string_view commit = "unknown");

}  // namespace launcher

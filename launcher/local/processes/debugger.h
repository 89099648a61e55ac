// --debug: one rank under gdb, in the terminal of ddprun.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/os/system/launch_error.h"
#include "launcher/plan/options.h"
#include "launcher/plan/program.h"

namespace launcher {

// Finds gdb for --debug. Throws LaunchError when PATH has no gdb, standard input is not a terminal, or the rank does
// not belong to this job.
inline std::string find_debugger(const Options& options) {
  const std::string option = "--debug " + std::to_string(*options.debug_rank);
  if (options.nnodes == 1 && *options.debug_rank >= options.nproc_per_node) {
    throw LaunchError(option + ": there is no such rank, the ranks are 0 to " +
                      std::to_string(options.nproc_per_node - 1));
  }
  if (::isatty(STDIN_FILENO) != 1) throw LaunchError(option + " needs a terminal, and standard input is not one");
  if (auto gdb = executable_in_path("gdb", options.working_folder)) return *gdb;
  throw LaunchError(option + " needs gdb, which is not in PATH; install the package gdb");
}

// Returns the arguments that run `program` under the debugger. For a script this is its interpreter, as gdb cannot
// debug a script. `first_line` is the first line of the program's file. Pure.
inline Program under_debugger(const Program& program, const std::string& debugger, std::string_view first_line) {
  Program own;
  own.file = debugger;
  own.arguments = {"gdb", "--args"};
  if (first_line.starts_with("#!")) {
    // The kernel reads this line as an interpreter and at most one argument.
    first_line.remove_prefix(2);
    const std::size_t start = first_line.find_first_not_of(" \t");
    first_line.remove_prefix(start == std::string_view::npos ? first_line.size() : start);
    const std::size_t space = first_line.find_first_of(" \t");
    own.arguments.emplace_back(first_line.substr(0, space));
    const std::size_t rest = space == std::string_view::npos ? space : first_line.find_first_not_of(" \t", space);
    if (rest != std::string_view::npos) own.arguments.emplace_back(first_line.substr(rest));
    own.arguments.push_back(program.file);
  } else if (!program.shell_arguments.empty()) {
    own.arguments.insert(own.arguments.end(), program.shell_arguments.begin(), program.shell_arguments.begin() + 2);
  } else {
    own.arguments.push_back(program.file);
  }
  own.arguments.insert(own.arguments.end(), program.arguments.begin() + 1, program.arguments.end());
  return own;
}

}  // namespace launcher

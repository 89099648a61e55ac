// Determines what to execute: looks up the program's name as a shell would, and runs Python files with the interpreter.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/plan/options.h"
#include "launcher/plan/worker_environment.h"

namespace launcher {

// Returns PYTHON_EXEC; else the python3 of the virtual environment in which this ddprun is installed, as torchrun uses
// its own; else "python3", which is looked up in PATH.
std::string python_interpreter();

// The argv of a worker before the lookup, with `python3 -u` before Python files and modules. Pure.
std::vector<std::string> worker_arguments(const Options& options, const std::string& python_executable);

// Returns the file that execvp would execute for `name` in `working_folder` (empty: here); a relative path is relative
// to that folder. Throws LaunchError with status 127 (no such program) or 126 (it exists, but is a folder or not
// executable), so that nothing is started.
std::string find_executable(const std::string& name, std::string_view path, const std::string& working_folder = {});
// The same with this process's PATH; nothing when there is no such program.
std::optional<std::string> executable_in_path(const std::string& name, const std::string& working_folder = {});

// The result of find_executable() for the program. For Python files it was also checked that the script exists.
struct Program {
  std::string file;                    // a relative path is relative to the ranks' working folder
  std::vector<std::string> arguments;  // argv[0] is the name that the user wrote
  // For a text file without a `#!` line, which the kernel refuses: these arguments run it with the shell, as execvp
  // would. Empty for binaries: a binary that the kernel refuses was built for another machine, and a shell cannot run
  // it.
  std::vector<std::string> shell_arguments;
};
Program resolve_program(const Options& options);

// The first line of a text file; "" for other files. `file` is its name in `working_folder` (empty: here).
std::string first_line_of_text(const std::string& file, const std::string& working_folder = {});

// The program of one rank if it differs from that of others, because of --pass_local_rank or --expand_arguments.
// Nothing when all ranks get the same arguments. Pure.
std::optional<Program> program_of_rank(const Program& program, const Options& options, const RankPlace& place);

}  // namespace launcher

// What to execute: the program's name looked up as a shell would, Python files through the interpreter.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/plan/options.h"
#include "launcher/plan/worker_environment.h"

namespace launcher {

// PYTHON_EXEC; else the python3 of the virtual environment that this ddprun is installed in, as torchrun takes its own;
// else "python3", to be looked up in PATH.
std::string python_interpreter();

// argv of a worker before the lookup: `python3 -u` in front of Python files and modules. Pure.
std::vector<std::string> worker_arguments(const Options& options, const std::string& python_executable);

// The file that execvp would take for `name` in `working_folder` (empty: here); a relative one is relative to it.
// Throws LaunchError with status 127 (no such program) or 126 (exists, but is a folder or not executable), so that
// nothing is started at all.
std::string find_executable(const std::string& name, std::string_view path, const std::string& working_folder = {});
// The same with this process's PATH; nothing where there is no such program.
std::optional<std::string> executable_in_path(const std::string& name, const std::string& working_folder = {});

// find_executable for the program and, for Python files, a check that the script itself is there.
struct Program {
  std::string file;                    // a relative one is relative to the ranks' working folder
  std::vector<std::string> arguments;  // argv[0] is the name as the user wrote it
  // Text without a `#!` line, which the kernel refuses: these arguments run it with the shell, as execvp would. Empty
  // for binaries: one that the kernel refuses was built for another machine, and a shell makes no sense of it.
  std::vector<std::string> shell_arguments;
};
Program resolve_program(const Options& options);

// The first line of a text file, "" of any other. `file` as it is called in `working_folder` (empty: here).
std::string first_line_of_text(const std::string& file, const std::string& working_folder = {});

// The program of one rank where it differs from the others': with --pass_local_rank and --expand_arguments. Nothing
// when all ranks get the same arguments. Pure.
std::optional<Program> program_of_rank(const Program& program, const Options& options, const RankPlace& place);

}  // namespace launcher

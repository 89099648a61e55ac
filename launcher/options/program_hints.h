// What is probably meant when the words after ddprun's options are not a program, or look like ddprun's own.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "launcher/plan/options.h"

namespace launcher {

// For a program that was not found, or is a folder: a question or an advice in brackets, or "". Looks into the folder
// of a file whose name is wrong.
std::string program_hint(const Options& options);

// A line on a number of ranks that stands after the program only. Pure.
std::optional<std::string> misplaced_ranks(const Options& options);

// A line on a number of nodes that stands after the program only. Pure.
std::optional<std::string> misplaced_nodes(const Options& options);

// A line where the program is torchrun, which starts ranks itself. Pure.
std::optional<std::string> launcher_in_rank(const Options& options);

// A line where a flag is given a value: --standalone true train.py. Pure.
std::optional<std::string> truth_as_program(const Options& options);

// A line where -m is given a file, or a launcher. Pure.
std::optional<std::string> doubtful_module(const Options& options);

// The error for a command line without a program, whose last word may have been taken for a value. Pure.
std::string no_program_text(std::span<const std::string> words);

// A line on a key for ssh where there are no hosts: srun's -i is another option. Pure.
std::optional<std::string> idle_identity(const Options& options);

// A line for each variable of -x NAME that ddprun does not have, and for each -x A=1,B=2.
std::vector<std::string> doubtful_exports(const Options& options);

}  // namespace launcher

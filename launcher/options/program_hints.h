// What is probably meant when the words after ddprun's options are no program, or look like ddprun's own.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/plan/options.h"

namespace launcher {

// For a program that was not found, or is a folder: a question or an advice in brackets, or "". Looks into the folder
// of a file whose name is wrong.
std::string program_hint(const Options& options);

// A line on the number of ranks after the program where there is none before it. Pure.
std::optional<std::string> misplaced_ranks(const Options& options);

// A line where -m is given a file. Pure.
std::optional<std::string> module_with_ending(const Options& options);

// A line for each variable of -x NAME that ddprun does not have.
std::vector<std::string> unset_exports(const Options& options);

}  // namespace launcher

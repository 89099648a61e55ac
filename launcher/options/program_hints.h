// Hints at what the user probably meant when the words after ddprun's options are not a program, or look like options
// of ddprun.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "launcher/plan/options.h"

namespace launcher {

// For a program that was not found, or is a folder: a question or an advice in parentheses, or "". Searches the
// program's folder for similar names.
std::string program_hint(const Options& options);

// A warning if a number of ranks comes only after the program. Pure.
std::optional<std::string> misplaced_ranks(const Options& options);

// A warning if a number of nodes comes only after the program. Pure.
std::optional<std::string> misplaced_nodes(const Options& options);

// A warning if the program is torchrun, which starts ranks itself. Pure.
std::optional<std::string> launcher_in_rank(const Options& options);

// A warning if a flag is given a value: --standalone true train.py. Pure.
std::optional<std::string> boolean_as_program(const Options& options);

// A warning if -m is given a file or a launcher. Pure.
std::optional<std::string> suspicious_module(const Options& options);

// The error for a command line without a program. Its last word may have been taken for a value. Pure.
std::string no_program_text(std::span<const std::string> words);

// A warning about an ssh key without hosts, because srun's -i is another option. Pure.
std::optional<std::string> unused_ssh_identity(const Options& options);

// A warning for each -x NAME whose variable ddprun does not have, and for each -x A=1,B=2.
std::vector<std::string> suspicious_exports(const Options& options);

}  // namespace launcher

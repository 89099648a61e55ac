// The command line outranks PET_ variables, also where two options exclude or replace each other.
#pragma once

#include "launcher/command_line/split_arguments.h"

namespace CLI {
class App;
}

namespace launcher {

// Makes `app` ignore the variables of options that were given empty, and of those that say something else than an
// option on the command line: PET_NO_PREFIX beside --prefix. What contradicts itself on the command line, or among the
// variables, is left for check_options() to refuse.
void ignore_outranked_variables(CLI::App& app, const SplitArguments& split);
// Throws UsageError where the variable of a flag says neither yes nor no.
void check_variables_of_flags(const CLI::App& app);

}  // namespace launcher

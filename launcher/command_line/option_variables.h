// Options that come from PET_ variables, which the command line outranks, also where two options exclude or replace each other.
#pragma once

#include <span>
#include <string>

#include "launcher/command_line/split_arguments.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace launcher {

// Makes `app` ignore the variables of options that were given empty, and of those that say something else than an
// option on the command line: PET_NO_PREFIX beside --prefix. What contradicts itself on the command line, or among the
// variables, is left for check_options() to refuse.
void ignore_outranked_variables(CLI::App& app, const SplitArguments& split);
// Throws UsageError where the variable of a flag says neither yes nor no.
void check_variables_of_flags(const CLI::App& app);

// Whether one of `words`, each `--name` or `--name=value`, is `option`.
bool is_typed(const CLI::App& app, const CLI::Option* option, std::span<const std::string> words);
// For an error that names options: " (--nnodes is from PET_NNODES)" for those of them that nobody has typed; or "".
std::string variables_behind(const std::string& error, const CLI::App& app, std::span<const std::string> words);

}  // namespace launcher

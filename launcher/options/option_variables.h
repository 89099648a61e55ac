// PET_ variables that set options. The command line takes precedence over them, also between two options that exclude
// or replace each other.
#pragma once

#include <map>
#include <span>
#include <string>

#include "launcher/options/split_arguments.h"
#include "launcher/plan/options.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI
namespace CLI {
class App;
}

namespace launcher {

// Variables in ddprun's own environment that torchrun reads besides PET_<option>, and PET_ variables of no option.

// Call it when `app` has parsed the command line. Sets the grace time from --shutdown_timeout, or from
// TORCH_ELASTIC_SHUTDOWN_TIMEOUT if neither this option nor --grace is given, and adds a note for each variable without
// effect. Throws UsageError for a value that torchrun refuses as well, and for two grace times.
void apply_torchrun_variables(const CLI::App& app, Options& options);

// Makes `app` ignore variables of options that were given an empty value, and variables that contradict an option on
// the command line, such as PET_NO_PREFIX and --prefix. Contradictions within the command line, or among variables, are
// left to check_options().
void ignore_outranked_variables(CLI::App& app, const SplitArguments& split);
// Throws UsageError when the variable of a flag is neither true nor false.
void check_variables_of_flags(const CLI::App& app);

// Whether `option` is one of `words`, each of which is `--name` or `--name=value`.
bool is_typed(const CLI::App& app, const CLI::Option* option, std::span<const std::string> words);
// Returns the variable of each option that got its value from a variable, because the option is not among `words`; by
// each of the option's names.
std::map<std::string, std::string> variables_in_use(const CLI::App& app, std::span<const std::string> words);

}  // namespace launcher

// Options that come from PET_ variables, which the command line outranks, also where two options exclude or replace
// each other.
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

// To be called when `app` has parsed the command line. Sets the grace time from --shutdown_timeout, or from
// TORCH_ELASTIC_SHUTDOWN_TIMEOUT where neither it nor --grace is given, and adds a note for each variable that has no
// effect. Throws UsageError for a value that torchrun refuses as well, and for two grace times.
void take_torchruns_variables(const CLI::App& app, Options& options);

// Makes `app` ignore the variables of options that were given empty, and of those that say something else than an
// option on the command line: PET_NO_PREFIX beside --prefix. What contradicts itself on the command line, or among the
// variables, is left for check_options() to refuse.
void ignore_outranked_variables(CLI::App& app, const SplitArguments& split);
// Throws UsageError where the variable of a flag says neither yes nor no.
void check_variables_of_flags(const CLI::App& app);

// Whether one of `words`, each `--name` or `--name=value`, is `option`.
bool is_typed(const CLI::App& app, const CLI::Option* option, std::span<const std::string> words);
// The variable of each option that has got its value from one, since none of `words` is it; by each of the option's
// names.
std::map<std::string, std::string> variables_in_use(const CLI::App& app, std::span<const std::string> words);

}  // namespace launcher

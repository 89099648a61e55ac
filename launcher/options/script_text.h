// What the completions of several shells have in common. Pure.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/options/shown_options.h"

namespace launcher {

// A command that prints this user's jobs on this machine: their names, or where these need quotes ddprun's process
// numbers.
inline constexpr std::string_view kRunningJobs =
    "env ddprun status --json 2> /dev/null | "
    R"sed(sed -nE 's/^\{"job":"([A-Za-z0-9._-]+)",.*/\1/p;t;s/^\{"job":"([^"\\]|\\.)*","pid":([0-9]+).*/\2/p')sed";

// One word in single quotes, without a meaning for bash and zsh; fish reads "\\" in quotes as one backslash.
std::string single_quoted(std::string_view text);

std::string joined(const std::vector<std::string>& words, std::string_view separator);

// "--nproc-per-node" for "--nproc_per_node"; empty where there is no other spelling.
std::string other_spelling(const std::string& name);

// The option's names, and behind them what the launcher takes as one but --help does not list: mpirun's -np.
std::vector<std::string> names_taken(const ShownOption& option);

// What `line` makes of each option, in the order of --help.
std::string for_each_option(const std::vector<ShownGroup>& groups,
                            const std::function<std::string(const ShownOption&)>& line);

}  // namespace launcher

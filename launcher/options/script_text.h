// What texts for shells and pages have in common. Pure.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/options/option_table.h"
#include "launcher/options/subcommands.h"

namespace launcher {

// A command that prints this user's jobs on this machine: their names, or where these need quotes ddprun's process
// numbers.
inline constexpr std::string_view kRunningJobs =
    "env ddprun status --json 2> /dev/null | "
    R"sed(sed -nE 's/^\{"job":"([A-Za-z0-9._-]+)",.*/\1/p;t;s/^\{"job":"([^"\\]|\\.)*","pid":([0-9]+).*/\2/p')sed";

// One word in single quotes, without a meaning for bash and zsh; fish reads "\\" in quotes as one backslash.
std::string single_quoted(std::string_view text);

// In a cell of a table of Markdown, which a "|" would end.
std::string in_cell(std::string_view text);

// "--nproc-per-node" for "--nproc_per_node"; empty where there is no other spelling.
std::string other_spelling(const std::string& name);

// The option's names, and after them what the launcher takes as one but --help does not list: mpirun's -np.
std::vector<std::string> names_taken(const ShownOption& option);

// How one text shows the options. `words` are "" for ddprun's own, else those before them, as in "timeline start".
struct TextFormat {
  std::function<std::string(const ShownGroup&)> group = [](const auto&) { return ""; };  // stands before its options
  std::function<std::string(const ShownOption&, const std::string& words)> option;
  std::function<std::string(const Subcommand&, const SubcommandForm&, const std::string& options)> form =
      [](const auto&, const auto&, const std::string& options) { return options; };
  std::function<std::string(const Subcommand&, const std::string& forms)> subcommand =
      [](const auto&, const std::string& forms) { return forms; };
};

struct TextBody {
  std::string options;
  std::string subcommands;
};

// The one walk over the options by which all of these texts are made.
TextBody text_body(const OptionTable& table, const TextFormat& format);

}  // namespace launcher

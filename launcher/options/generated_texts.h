// The texts that --generate prints, all made of the options as they are declared, by one walk over them. Pure.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/options/option_table.h"
#include "launcher/options/subcommands.h"

namespace launcher {

// The manual page ddprun(1), in troff's man macros: ASCII, the same bytes for the same options, with no date.
std::string manual_page(const OptionTable& table);

// Completion of ddprun's options and of the program's own, as scripts for shells. Each offers options in the spelling
// of --help and knows the other one too, offers values where there is a choice and files or folders where one is meant,
// and after the program what completes the program's own command line. The same options give the same bytes.
std::string bash_completion(const OptionTable& table);
std::string zsh_completion(const OptionTable& table);
std::string fish_completion(const OptionTable& table);

struct GeneratedText {
  const char* kind;  // as in --generate KIND
  std::string (*make)(const OptionTable& table);
};

std::span<const GeneratedText> generated_texts();

// `kind` is one of them.
std::string generated_text(const std::string& kind, const OptionTable& table);

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

// The walk.
TextBody text_body(const OptionTable& table, const TextFormat& format);

// What a page says of one term, in Markdown.
struct Entry {
  std::string term;
  std::string meaning;
};

std::vector<Entry> variables_of_ranks();
std::vector<Entry> exit_statuses();

// "status top timeline"
std::string subcommand_words();

// A command that prints this user's jobs on this machine: their names, or where these need quotes ddprun's process
// numbers.
inline constexpr std::string_view kRunningJobs =
    "env ddprun status --json 2> /dev/null | "
    R"sed(sed -nE 's/^\{"job":"([A-Za-z0-9._-]+)",.*/\1/p;t;s/^\{"job":"([^"\\]|\\.)*","pid":([0-9]+).*/\2/p')sed";

// What -h and --help of a subcommand do.
inline constexpr std::string_view kHelpMeaning = "Print the options of this command";

// One word in single quotes, without a meaning for bash and zsh; fish reads "\\" in quotes as one backslash.
std::string single_quoted(std::string_view text);

// In a cell of a table of Markdown, which a "|" would end.
std::string in_cell(std::string_view text);

// "--nproc-per-node" for "--nproc_per_node"; empty where there is no other spelling.
std::string other_spelling(const std::string& name);

// What the launcher takes as a name of the option but --help does not list: mpirun's -np.
std::vector<std::string> unlisted_names(const ShownOption& option);

}  // namespace launcher

// The texts that --generate prints. All are made from the declared options, by one walk over them. Pure.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/options/option_table.h"
#include "launcher/options/subcommands.h"

namespace launcher {

// The manual page ddprun(1), in troff's man macros. It is ASCII without a date, so the same options give the same
// bytes.
std::string manual_page(const OptionTable& table);

// Completion scripts for shells, for ddprun's options and the program's own arguments. Each script offers options in
// the spelling of --help and accepts the other spelling, offers values, files or folders where the option takes them,
// and after the program uses the program's own completion. The same options give the same bytes.
std::string bash_completion(const OptionTable& table);
std::string zsh_completion(const OptionTable& table);
std::string fish_completion(const OptionTable& table);

struct GeneratedText {
  const char* kind;  // the KIND of --generate
  std::string (*make)(const OptionTable& table);
};

std::span<const GeneratedText> generated_texts();

// `kind` must be one of these.
std::string generated_text(const std::string& kind, const OptionTable& table);

// How one text shows the options. `words` are "" for ddprun's own options, else the words before the options, such as
// "timeline start".
struct TextFormat {
  std::function<std::string(const ShownGroup&)> group = [](const auto&) {
    return "";
  };  // printed before the group's options
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

// Walks over all options and returns the text.
TextBody text_body(const OptionTable& table, const TextFormat& format);

// One term of a page and its text, in Markdown.
struct Entry {
  std::string term;
  std::string meaning;
};

std::vector<Entry> variables_of_ranks();
std::vector<Entry> exit_statuses();

// "status top timeline"
std::string subcommand_words();

// A command that prints the names of this user's jobs on this machine, or ddprun's process numbers if the names need
// quotes.
inline constexpr std::string_view kRunningJobs =
    "env ddprun status --json 2> /dev/null | "
    R"sed(sed -nE 's/^\{"job":"([A-Za-z0-9._-]+)",.*/\1/p;t;s/^\{"job":"([^"\\]|\\.)*","pid":([0-9]+).*/\2/p')sed";

// The text for -h and --help of a subcommand.
inline constexpr std::string_view kHelpMeaning = "Print the options of this command";

// Puts a word into single quotes, so that bash and zsh do not interpret it. In quotes fish reads "\\" as one backslash.
std::string single_quoted(std::string_view text);

// Escapes "
// ", which would end a cell of a Markdown table.
std::string in_cell(std::string_view text);

// Returns "--nproc-per-node" for "--nproc_per_node"; empty if there is no other spelling.
std::string other_spelling(const std::string& name);

// Names that the launcher accepts and --help does not list: mpirun's -np.
std::vector<std::string> unlisted_names(const ShownOption& option);

}  // namespace launcher

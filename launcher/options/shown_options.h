// The options in the form in which --help, the manual page, the completions of shells and the pages of docs/ show them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace launcher {

struct ShownOption {
  std::vector<std::string> names{};   // as they are typed, short ones first: "-n", "--nproc_per_node"
  std::string value{};                // as in "N|gpu|cpu|auto"; empty: it takes none
  bool value_may_be_missing = false;  // a given value must be in the same word
  bool may_be_repeated = false;       // each occurrence counts
  std::string fallback{};             // the default as text; empty: there is no default, as there is no variable
  bool has_default = false;           // `fallback` is the value of a member of Options
  std::string variable{};             // the variable that sets it if it is not given
  std::string meaning{};              // words between backquotes are code
  std::string details{};              // more text with Markdown links, for the manual page and docs/; may be empty

  // "-n, --nproc_per_node N|gpu|cpu|auto"
  std::string usage() const;
  // The words among the permitted values: "gpu", "cpu", "auto".
  std::vector<std::string> words() const;
  // The meaning on one line, with the default at its end: "For all nodes to arrive [900]".
  std::string summary() const;
  bool takes_file() const { return value == "FILE"; }
  bool takes_folder() const { return value == "DIR" || value == "FOLDER"; }
  // Whether its value may be the next argument.
  bool takes_next_word() const { return !value.empty() && !value_may_be_missing; }
};

struct ShownGroup {
  std::string title{};
  std::string introduction{};  // in Markdown, for docs/
  std::vector<ShownOption> options{};
};

// "[a `b`](page.md)" -> "a `b`"
std::string without_links(std::string_view markdown);
// "[a `b`](page.md)" -> "a b"
std::string plain_text(std::string_view markdown);

}  // namespace launcher

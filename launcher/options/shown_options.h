// The options as --help, the manual page and the completions of shells show them: read from what OptionTable declared.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace launcher {

struct ShownOption {
  std::vector<std::string> names{};   // as they are typed, short ones first: "-n", "--nproc_per_node"
  std::string value{};                // as in "N|gpu|cpu|auto"; empty: it takes none
  bool value_may_be_missing = false;  // where it is given, it is in the same word
  bool may_be_repeated = false;       // and each one counts
  std::string fallback{};             // empty: it has none, as it has no variable
  std::string variable{};             // that sets it when it is not given
  std::string meaning{};

  // "-n, --nproc_per_node N|gpu|cpu|auto"
  std::string usage() const;
  // The words among the values: "gpu", "cpu", "auto".
  std::vector<std::string> words() const;
  bool takes_file() const { return value == "FILE"; }
  bool takes_folder() const { return value == "DIR" || value == "FOLDER"; }
  // Whether its value may be the next argument.
  bool takes_next_word() const { return !value.empty() && !value_may_be_missing; }
};

struct ShownGroup {
  std::string title{};
  std::vector<ShownOption> options{};
};

// Groups in the order of their first option, and the options of each in the order of their declaration.
std::vector<ShownGroup> shown_options(const CLI::App& app);

}  // namespace launcher

#include "launcher/options/program_hints.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "launcher/options/foreign_arguments.h"
#include "launcher/options/subcommands.h"
#include "launcher/options/suggestion.h"

namespace launcher {
namespace {

bool is_number_of_ranks(std::string_view text) {
  return is_whole_number(text) || text == "gpu" || text == "cpu" || text == "auto";
}

bool is_in_path(const std::string& name) {
  const char* const path = std::getenv("PATH");
  std::string_view left = path == nullptr ? "/bin:/usr/bin" : path;
  while (!left.empty()) {
    const std::string_view folder = left.substr(0, left.find(':'));
    if (::access((std::string(folder) + "/" + name).c_str(), X_OK) == 0) return true;
    left.remove_prefix(std::min(left.size(), folder.size() + 1));
  }
  return false;
}

// Words of ddprun whose value, where there is one, is in the same word.
std::string bare_option(const Options& options) {
  if (options.own_words.empty()) return "";
  const std::string& last = options.own_words.back();
  return last == "--prefix" || last == "--pass_local_rank" ? last : "";
}

std::string nearest_file(const std::string& program, const std::string& working_folder) {
  const std::filesystem::path path(program);
  const std::filesystem::path folder = std::filesystem::path(working_folder) / path.parent_path();
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder.empty() ? "." : folder, error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->is_regular_file(error) && entry->path().filename() != path.filename())
      names.push_back(entry->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  const std::string nearest = nearest_name(path.filename().string(), names);
  return nearest.empty() ? "" : (path.parent_path() / nearest).string();
}

std::string hint_on_word(const std::string& name) {
  constexpr std::array<std::string_view, 3> kDashes = {"\u2013", "\u2014",
                                                       "\u2212"};  // which word processors make of --
  for (const std::string_view dash : kDashes) {
    if (name.starts_with(dash)) return "it begins with a long dash: write --" + name.substr(dash.size());
  }
  if (name.find_first_of(" \t") != std::string::npos) {
    if (name.find_first_of(";&|<>$") != std::string::npos) {
      return "the quotes make it one word, the name of a program; as a command of the shell: ddprun ... sh -c '" +
             name + "'";
    }
    return "the quotes make it one word, the name of a program; leave them out: ddprun ... " + name;
  }
  constexpr std::array<std::string_view, 6> kLaunchers = {"torchrun", "mpirun",     "mpiexec",
                                                          "srun",     "horovodrun", "deepspeed"};
  if (std::find(kLaunchers.begin(), kLaunchers.end(), name) != kLaunchers.end()) {
    return "ddprun takes the place of " + name + ": leave it out";
  }
  if (is_whole_number(name)) return "for " + name + " ranks write -n " + name + " before the program";
  const std::size_t equals = name.find('=');
  if (equals != std::string::npos && equals > 0 && name.find('/') > equals) {
    return "to set a variable for the ranks write -x " + name;
  }
  if (name == "python" && is_in_path("python3")) return "python3 is there; a .py file needs neither: ddprun script.py";
  return "";
}

// "-n 2" where `word` and what follows it count ranks, else "". `takes_n`: -n is meant too.
std::string words_of_ranks(const std::string& word, const std::string& next, bool takes_n) {
  const std::string name = word.substr(0, word.find('='));
  const bool is_long = name == "--nproc_per_node" || name == "--nproc-per-node" || name == "-np" || name == "--np";
  if (!is_long && !(takes_n && name == "-n")) return "";
  const bool has_value = name.size() < word.size();
  if (!is_number_of_ranks(has_value ? word.substr(name.size() + 1) : next)) return "";
  return has_value ? word : name + " " + next;
}

}  // namespace

std::string program_hint(const Options& options) {
  const std::string& name = options.program.front();
  if (const std::string option = bare_option(options); !option.empty()) {
    const bool is_mpiruns = option == "--prefix" && name.starts_with('/');
    if (is_mpiruns) {
      return " (mpirun's --prefix, the folder of Open MPI, is not needed: leave out --prefix " + name +
             "; ddprun's --prefix=TEXT is the text before each line of output)";
    }
    return " (write a value of " + option + " in the same word: " + option + "='" + name + "')";
  }
  if (const std::string hint = hint_on_word(name); !hint.empty()) return " (" + hint + ")";
  std::vector<std::string> words;
  for (const Subcommand& subcommand : subcommands()) words.push_back(subcommand.word);
  const bool is_plain = name.find_first_of("./") == std::string::npos;
  const std::string word = is_plain && name.size() > 2 ? nearest_name(name, words) : "";
  if (!word.empty()) return " (did you mean ddprun " + word + "?)";
  const std::string file = is_plain ? "" : nearest_file(name, options.working_folder);
  return file.empty() ? "" : " (did you mean " + file + "?)";
}

std::optional<std::string> misplaced_ranks(const Options& options) {
  const bool is_counted = options.nproc_per_node != Options::kUnset || options.nnodes > 1 || !options.hosts.empty() ||
                          !options.host_file.empty() || !options.gpus.empty();
  if (is_counted || options.program.empty()) return std::nullopt;
  const std::string& program = options.program.front();
  // Of a program in PATH, such as head, -n is an option of its own.
  const bool is_own = program.find('/') != std::string::npos || program.ends_with(".py") || options.module;
  const auto end = std::find(options.program.begin() + 1, options.program.end(), "--");
  for (auto word = options.program.begin() + 1; word != end; ++word) {
    const std::string text = words_of_ranks(*word, word + 1 == end ? "" : *(word + 1), is_own);
    if (text.empty()) continue;
    return "only 1 rank is started: " + text +
           " comes after the program, so it is passed to the program. Put ddprun's "
           "options before the program: ddprun " +
           text + " " + program;
  }
  return std::nullopt;
}

std::optional<std::string> module_with_ending(const Options& options) {
  if (!options.module || options.program.empty() || !options.program.front().ends_with(".py")) return std::nullopt;
  const std::string& file = options.program.front();
  const std::string module = file.substr(0, file.size() - 3);
  return "-m " + file + ": the name of a module has no .py: ddprun -m " + module + ", or for the file: ddprun " + file;
}

std::vector<std::string> unset_exports(const Options& options) {
  std::vector<std::string> lines;
  for (const std::string& entry : options.exported) {
    if (entry.find('=') != std::string::npos || std::getenv(entry.c_str()) != nullptr) continue;
    lines.push_back("-x " + entry +
                    ": this variable is not set here, so the ranks do not get it; to set it, write -x " + entry +
                    "=VALUE");
  }
  return lines;
}

}  // namespace launcher

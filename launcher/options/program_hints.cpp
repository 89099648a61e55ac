#include "launcher/options/program_hints.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "base/joined.h"
#include "launcher/options/declare_options.h"
#include "launcher/options/foreign_arguments.h"
#include "launcher/options/subcommands.h"
#include "launcher/options/suggestion.h"
#include "launcher/os/system/is_one_of.h"
#include "launcher/os/system/shell_quote.h"
#include "launcher/plan/program.h"

namespace launcher {
namespace {

bool is_number_of_ranks(std::string_view text) {
  return is_whole_number(text) || text == "gpu" || text == "cpu" || text == "auto";
}

// Returns the last option if it takes its value only in the same word and has none, else "".
std::string bare_option(const Options& options) {
  if (options.own_arguments.empty()) return "";
  const std::string& last = options.own_arguments.back();
  return last == "--prefix" || last == "--pass_local_rank" ? last : "";
}

// Returns "" for a file that exists, because the name is not the problem then.
std::string nearest_file(const std::string& program, const std::string& working_folder) {
  const std::filesystem::path path(program);
  const std::filesystem::path folder = std::filesystem::path(working_folder) / path.parent_path();
  std::vector<std::string> names;
  std::error_code error;
  if (std::filesystem::exists(folder / path.filename(), error)) return "";
  for (std::filesystem::directory_iterator entry(folder.empty() ? "." : folder, error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->is_regular_file(error) && entry->path().filename() != path.filename())
      names.push_back(entry->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  const std::string nearest = nearest_name(path.filename().string(), names);
  return nearest.empty() ? "" : (path.parent_path() / nearest).string();
}

// "../train.py" for "train.py": in the folder above the current one, or in one below it.
std::string same_name_elsewhere(const std::string& program) {
  std::error_code error;
  std::vector<std::string> found;
  if (const std::string above = "../" + program; std::filesystem::is_regular_file(above, error)) return above;
  for (std::filesystem::directory_iterator entry(".", error), end; !error && entry != end; entry.increment(error)) {
    const std::filesystem::path below = entry->path().filename() / program;
    if (std::filesystem::is_regular_file(below, error)) found.push_back(below.string());
  }
  return found.empty() ? "" : *std::min_element(found.begin(), found.end());
}

// Returns the folder in which a relative name was looked up.
std::string searched_folder(const std::string& program, const std::string& working_folder) {
  std::error_code error;
  if (program.starts_with('/') || !working_folder.empty() || std::filesystem::exists(program, error)) return "";
  if (const std::string path = same_name_elsewhere(program); !path.empty()) return " (did you mean " + path + "?)";
  return " (the current folder is " + std::filesystem::current_path(error).string() +
         "; give the path of the program from there)";
}

// "-n=2" for "\u2013n=2".
std::string with_short_dashes(std::string_view name) {
  name.remove_prefix(std::min(name.find_first_not_of("-\xe2\x80\x93\x94\x88\x92"), name.size()));
  return (name.substr(0, name.find('=')).size() == 1 ? "-" : "--") + std::string(name);
}

// A number after "-x NAME" is the value in hydra's form.
std::string hint_on_number(const std::string& number, const Options& options) {
  const std::string last = options.own_arguments.empty() ? "" : options.own_arguments.back();
  const std::string export_ = "--export=";
  if (last.starts_with(export_) && last.find('=', export_.size()) == std::string::npos) {
    const std::string name = last.substr(export_.size());
    return "to set " + name + " to " + number + " write -x " + name + "=" + number;
  }
  return "for " + number + (number == "1" ? " rank" : " ranks") + " write -n " + number + " before the program";
}

// Returns "--standalone" if `word` was given to this flag as a value: --standalone 1 train.py.
std::string flag_before(const std::string& word, const Options& options) {
  constexpr std::array<std::string_view, 10> kBooleanWords = {"0",   "1",    "yes",   "no",   "on",
                                                              "off", "true", "false", "True", "False"};
  if (options.program.size() < 2 || options.own_arguments.empty() || !is_one_of(kBooleanWords, word)) return "";
  const std::string& last = options.own_arguments.back();
  return last.find('=') == std::string::npos ? last : "";
}

std::string hint_on_assignment(const std::string& word) {
  const std::string name = word.substr(0, word.find('='));
  if (name == "slots") return "the ranks of a host are written with its name: -H HOST:" + word.substr(name.size() + 1);
  if (is_torchrun_name(name)) return "an option begins with two dashes: --" + word;
  return "to set a variable for the ranks write -x " + word;
}

std::string hint_on_word(const Options& options) {
  const std::string& name = options.program.front();
  constexpr std::array<std::string_view, 3> kDashes = {"\u2013", "\u2014",
                                                       "\u2212"};  // word processors replace -- by these
  for (const std::string_view dash : kDashes) {
    if (name.starts_with(dash)) return "it begins with a long dash: write " + with_short_dashes(name);
  }
  if (name.find_first_of(" \t") != std::string::npos) {
    if (name.find_first_of(";&|<>$") != std::string::npos) {
      return "the quotes make it one word, the name of a program; to run it as a command of the shell: ddprun ... sh "
             "-c '" +
             name + "'";
    }
    return "the quotes make it one word, the name of a program; leave them out: ddprun ... " + name;
  }
  constexpr std::array<std::string_view, 10> kLaunchers = {"torchrun",  "mpirun",     "mpiexec", "srun", "horovodrun",
                                                           "deepspeed", "accelerate", "launch",  "run",  "start"};
  if (is_one_of(kLaunchers, name)) return "ddprun replaces " + name + ": leave it out";
  constexpr std::array<std::string_view, 8> kShellBuiltins = {"cd",     "source", ".",     "export",
                                                              "module", "ulimit", "alias", "set"};
  if (is_one_of(kShellBuiltins, name) && options.program.size() > 1)
    return "it is a command of the shell: ddprun ... sh -c '" + name + " ... && exec ./PROGRAM'";
  constexpr std::array<std::string_view, 5> kAnswers = {"help", "version", "check", "dry_run", "show_env"};
  if (is_one_of(kAnswers, name)) return "did you mean ddprun --" + name + "?";
  if (name.starts_with('-')) return "the program follows --; options of ddprun come before it";
  if (const std::string flag = flag_before(name, options); !flag.empty())
    return flag + " takes no value: leave " + name + " out";
  if (is_whole_number(name)) return hint_on_number(name, options);
  const std::size_t equals = name.find('=');
  if (equals != std::string::npos && equals > 0 && name.find('/') > equals) return hint_on_assignment(name);
  if (name == "python" && executable_in_path("python3"))
    return "python3 is in PATH; a .py file needs neither name: ddprun script.py";
  return "";
}

// Returns "B=2" for "A=1,B=2", which srun takes for two variables, and for "A=1 B=2", which a shell takes for two.
std::string second_assignment(const std::string& entry) {
  constexpr const char* kSeparators = ", ";
  for (std::size_t at = entry.find_first_of(kSeparators); at != std::string::npos;
       at = entry.find_first_of(kSeparators, at + 1)) {
    const std::size_t end = entry.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789", at + 1);
    if (end != std::string::npos && end > at + 1 && entry[end] == '=') return entry.substr(at + 1);
  }
  return "";
}

// Returns "-n 2" if `word` and the word after it are a number of ranks, else "". `takes_n`: -n counts, too.
std::string ranks_option(const std::string& word, const std::string& next, bool takes_n) {
  const std::string name = word.substr(0, word.find('='));
  if (takes_n && name.starts_with("-n") && is_whole_number(name.substr(2))) return word;  // -n2
  const bool is_long = name == "--nproc_per_node" || name == "--nproc-per-node" || name == "-np" || name == "--np";
  if (!is_long && !(takes_n && name == "-n")) return "";
  const bool has_value = name.size() < word.size();
  if (!is_number_of_ranks(has_value ? word.substr(name.size() + 1) : next)) return "";
  return has_value ? word : name + " " + next;
}

// Returns "--nnodes 2" if `word` and the word after it are a number of nodes above 1, else "".
std::string nodes_option(const std::string& word, const std::string& next) {
  const std::string name = word.substr(0, word.find('='));
  if (name != "--nnodes") return "";
  const bool has_value = name.size() < word.size();
  const std::string value = has_value ? word.substr(name.size() + 1) : next;
  const bool is_number = !value.empty() && value.find_first_not_of("0123456789:") == std::string::npos;
  if (!is_number || value == "1") return "";
  return has_value ? word : name + " " + next;
}

// `text` is the text at `word` in the program's arguments.
std::string misplaced_text(const std::vector<std::string>& program, std::vector<std::string>::const_iterator word,
                           const std::string& text) {
  std::string right = "ddprun " + text;
  for (auto before = program.begin(); before != word; ++before) right += " " + *before;
  return text +
         " comes after the program, so it is passed to the program. Put ddprun's options before the program: " + right;
}

std::string base_name(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

bool is_module_of_torchrun(std::string_view name) {
  return name == "torch.distributed.launch" || name == "torch.distributed.run";
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
  if (const std::string hint = hint_on_word(options); !hint.empty()) return " (" + hint + ")";
  std::vector<std::string> words;
  for (const Subcommand& subcommand : subcommands()) words.push_back(subcommand.word);
  const bool is_plain = name.find_first_of("./") == std::string::npos;
  const std::string word = is_plain && name.size() > 2 ? nearest_name(name, words) : "";
  if (!word.empty()) return " (did you mean ddprun " + word + "?)";
  const std::string file = is_plain ? "" : nearest_file(name, options.working_folder);
  if (!file.empty()) return " (did you mean " + file + "?)";
  return is_plain ? "" : searched_folder(name, options.working_folder);
}

std::optional<std::string> misplaced_ranks(const Options& options) {
  const bool is_counted = options.nproc_per_node != Options::kUnset || options.nnodes > 1 || !options.hosts.empty() ||
                          !options.host_file.empty() || !options.gpus.empty();
  if (is_counted || options.program.empty()) return std::nullopt;
  const std::string& program = options.program.front();
  // A program in PATH, such as head, may have an option -n itself.
  bool is_own = program.find('/') != std::string::npos || options.module;
  const auto end = std::find(options.program.begin() + 1, options.program.end(), "--");
  for (auto word = options.program.begin() + 1; word != end; ++word) {
    is_own = is_own || (word - 1)->ends_with(".py");
    const std::string text = ranks_option(*word, word + 1 == end ? "" : *(word + 1), is_own);
    if (!text.empty()) return "only 1 rank is started: " + misplaced_text(options.program, word, text);
  }
  return std::nullopt;
}

std::optional<std::string> misplaced_nodes(const Options& options) {
  if (options.nnodes > 1 || !options.hosts.empty() || !options.host_file.empty() || options.program.empty())
    return std::nullopt;
  const auto end = std::find(options.program.begin() + 1, options.program.end(), "--");
  for (auto word = options.program.begin() + 1; word != end; ++word) {
    const std::string text = nodes_option(*word, word + 1 == end ? "" : *(word + 1));
    if (!text.empty()) return "this node runs alone: " + misplaced_text(options.program, word, text);
  }
  return std::nullopt;
}

std::optional<std::string> launcher_in_rank(const Options& options) {
  if (options.program.empty() || options.module) return std::nullopt;
  const std::vector<std::string>& program = options.program;
  std::string shown = base_name(program.front());
  if (shown.starts_with("python") && program.size() > 2 && program[1] == "-m" && is_module_of_torchrun(program[2])) {
    shown += " -m " + program[2];
  } else if (shown != "torchrun") {
    return std::nullopt;
  }
  return shown + " would start its own ranks in each rank of ddprun, which replaces it: leave " + shown + " out";
}

std::optional<std::string> boolean_as_program(const Options& options) {
  const std::string word = options.program.empty() ? "" : options.program.front();
  const std::string option = flag_before(word, options);
  if (option.empty() || (word != "true" && word != "false")) return std::nullopt;
  return option + " takes no value, so " + word + " was started as the program. To start " + options.program[1] +
         " write ddprun " + option + " " + ddp::detail::joined(std::span(options.program).subspan(1), " ");
}

std::optional<std::string> suspicious_module(const Options& options) {
  if (!options.module || options.program.empty()) return std::nullopt;
  const std::string& name = options.program.front();
  if (is_module_of_torchrun(name)) return "-m " + name + ": ddprun replaces it; leave -m " + name + " out";
  if (name.ends_with(".py")) {
    const std::string module = name.substr(0, name.size() - 3);
    return "-m " + name + ": the name of a module has no .py: ddprun -m " + module + ", or for the file: ddprun " +
           name;
  }
  if (name.find('/') == std::string::npos) return std::nullopt;
  return "-m " + name +
         ": the name of a module has dots, no slashes, as in package.train; for a file or folder: "
         "ddprun --run_path " +
         name;
}

std::string no_program_text(std::span<const std::string> words) {
  const std::string usage = "no program given: ddprun [OPTIONS] PROGRAM [ARGUMENTS...]";
  if (words.size() == 1 && words.front() == "-v") return usage + "; the version: ddprun --version";
  if (words.size() < 2 || words.back().starts_with('-') || is_number_of_ranks(words.back())) return usage;
  // Words that cannot be a program: timeout=60, host:2.
  if (words.back().find_first_of("=:") != std::string::npos) return usage;
  const auto option =
      std::find_if(words.rbegin(), words.rend(), [](const auto& word) { return word.starts_with('-'); });
  if (option == words.rend()) return usage;
  const auto before = words.first(words.size() - 1);
  const auto name = before.subspan(static_cast<std::size_t>(words.rend() - option) - 1);
  return "no program given: '" + words.back() + "' was taken as the value of " + ddp::detail::joined(name, " ") +
         ". Write a value before the program: ddprun " + ddp::detail::joined(before, " ") + " VALUE " + words.back();
}

std::optional<std::string> unused_ssh_identity(const Options& options) {
  if (options.ssh.identity.empty() || !options.hosts.empty() || !options.host_file.empty()) return std::nullopt;
  return "--ssh_identity " + options.ssh.identity +
         " has no effect without -H or --hostfile; to read standard input from a file (srun's -i) put < FILE at the "
         "end of the command";
}

std::vector<std::string> suspicious_exports(const Options& options) {
  std::vector<std::string> lines;
  for (const std::string& entry : options.exported) {
    const std::size_t equals = entry.find('=');
    if (const std::string second = second_assignment(entry); !second.empty())
      lines.push_back("-x " + shell_quote(entry) + " sets one variable; to set two, write -x " +
                      entry.substr(0, entry.size() - second.size() - 1) + " -x " + second);
    if (equals != std::string::npos || std::getenv(entry.c_str()) != nullptr) continue;
    lines.push_back("-x " + entry +
                    ": this variable is not set here, so the ranks do not get it; to set it, write -x " + entry +
                    "=VALUE");
  }
  return lines;
}

}  // namespace launcher

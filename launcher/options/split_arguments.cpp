#include "launcher/options/split_arguments.h"

#include <CLI/App.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>
#include <optional>
#include <utility>

#include "base/joined.h"
#include "launcher/options/foreign_arguments.h"
#include "launcher/options/option_table.h"
#include "launcher/options/subcommands.h"
#include "launcher/options/suggestion.h"
#include "launcher/options/usage_error.h"

namespace launcher {
namespace {

struct Word {
  std::string name;  // without dashes, with underscores
  std::optional<std::string> value{};
};

std::string with_dashes(std::string_view name) {
  std::string text = "--" + std::string(name);
  std::replace(text.begin(), text.end(), '_', '-');
  return text;
}

// Returns the name that begins with `beginning` (both without dashes, with underscores), as Python's argparse completes
// names: --redirect=3, --nproc-per 2. Returns nothing if no name does; throws UsageError with the candidates if there
// are several.
std::optional<std::string> complete_name(std::string_view beginning, std::span<const std::string> names) {
  if (beginning.empty()) return std::nullopt;
  // This is an argument of scripts that torch.distributed.launch starts, not an abbreviation of --local_ranks_filter.
  if (beginning == "local_rank") {
    throw UsageError(
        "--local_rank is not an option of a launcher: each rank finds its number in the variable LOCAL_RANK; for a "
        "program "
        "that reads it from its arguments write --pass_local_rank");
  }
  std::vector<std::string_view> found;
  std::copy_if(names.begin(), names.end(), std::back_inserter(found),
               [beginning](std::string_view name) { return name.starts_with(beginning); });
  if (found.empty()) return std::nullopt;
  if (found.size() == 1) return std::string(found.front());
  throw UsageError("ambiguous option: " + with_dashes(beginning) + " could match " +
                   ddp::detail::joined(found, ", ", with_dashes));
}

Word split_word(const OptionTable& table, const std::string& argument) {
  const CLI::App& app = table.app();
  const std::size_t equals = argument.find('=');
  const auto after_equals = [&]() -> std::optional<std::string> {
    return equals == std::string::npos ? std::nullopt : std::optional(argument.substr(equals + 1));
  };
  if (argument.starts_with("--")) {
    Word word{argument.substr(2, equals == std::string::npos ? equals : equals - 2), after_equals()};
    std::replace(word.name.begin(), word.name.end(), '-', '_');
    const bool is_known = app.get_option_no_throw("--" + word.name) != nullptr;
    if (!is_known) word.name = complete_name(word.name, table.torchrun_names()).value_or(word.name);
    return word;
  }
  if (argument.substr(0, equals) == kMpirunRanksOption) return {"nproc_per_node", after_equals()};
  if (argument.starts_with(kMpirunRanksOption) && is_whole_number(argument.substr(kMpirunRanksOption.size()))) {
    return {"nproc_per_node", argument.substr(kMpirunRanksOption.size())};
  }
  // mpirun's long options may have one or two dashes: -hostfile.
  std::string name = argument.substr(1, equals == std::string::npos ? equals : equals - 1);
  std::replace(name.begin(), name.end(), '-', '_');
  if (name.size() > 1 && app.get_option_no_throw("--" + name) != nullptr) return {name, after_equals()};
  Word word{argument.substr(1, 1)};
  if (argument.size() > 2) word.value = argument.substr(argument[2] == '=' ? 3 : 2);
  return word;
}

// Names that no launcher has, but that users try.
std::string advice_on_synonym(std::string_view name) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 28> kSuggestions = {{
      {"n_gpus", "-n N"},
      {"ngpus", "-n N"},
      {"num_gpu", "-n N"},
      {"num_gpus_per_node", "-n N"},
      {"n_procs", "-n N"},
      {"nprocs", "-n N"},
      {"num_procs", "-n N"},
      {"processes", "-n N"},
      {"num_processes_per_node", "-n N"},
      {"num_ranks", "-n N"},
      {"nranks", "-n N"},
      {"num_workers", "-n N"},
      {"workers", "-n N"},
      {"world_size", "-n N"},
      {"rank", "-n N, with which ddprun numbers the ranks itself"},
      {"devices", "--gpus LIST"},
      {"device", "--gpus LIST"},
      {"?", "--help"},
      {"port", "--master_port PORT"},
      {"workdir", "--wdir FOLDER"},
      {"cwd", "--wdir FOLDER"},
      {"restart", "--max_restarts N"},
      {"restarts", "--max_restarts N"},
      {"retries", "--max_restarts N"},
      {"ssh_key", "--ssh_identity FILE"},
      {"identity", "--ssh_identity FILE"},
      {"python", "PYTHON_EXEC=FILE before ddprun"},
      {"interpreter", "PYTHON_EXEC=FILE before ddprun"},
  }};
  const auto found =
      std::find_if(kSuggestions.begin(), kSuggestions.end(), [&](const auto& each) { return each.first == name; });
  return found == kSuggestions.end() ? "" : "did you mean " + std::string(found->second) + "?";
}

// `name` contains underscores, not dashes.
std::string advice_on_unknown(const CLI::App& app, const std::string& name) {
  if (std::string advice = advice_on_synonym(name); !advice.empty()) return advice;
  if (const std::size_t colon = name.find(':'); app.get_option_no_throw("--" + name.substr(0, colon)) != nullptr)
    return "a value comes after =: --" + name.substr(0, colon) + "=" + name.substr(colon + 1);
  for (const Subcommand& subcommand : subcommands()) {
    if (subcommand.word == name) return "did you mean ddprun " + name + "?";
  }
  std::vector<std::string> names;
  for (const CLI::Option* option : declared_options(app)) {
    names.insert(names.end(), option->get_lnames().begin(), option->get_lnames().end());
  }
  const std::string nearest = name.size() == 1 ? "" : nearest_name(name, names);
  return nearest.empty() ? "see ddprun --help; if it is an option of the program, put it after the program"
                         : "did you mean --" + nearest + "?";
}

[[noreturn]] void refuse_unknown(const CLI::App& app, const std::string& argument) {
  const std::string shown = argument.substr(0, argument.find('='));
  std::string name = shown.substr(std::min(shown.find_first_not_of('-'), shown.size()));
  std::replace(name.begin(), name.end(), '-', '_');
  throw UsageError("unknown option " + shown + "; " + advice_on_unknown(app, name));
}

// Whether `word` is an option of ddprun, found in the place of another option's value.
bool is_own_option(const CLI::App& app, const std::string& word) {
  if (word == "--") return true;
  std::string name = word.substr(0, word.find('='));
  if (!name.starts_with("--")) return name.size() == 2 && name[0] == '-' && app.get_option_no_throw(name) != nullptr;
  std::replace(name.begin() + 2, name.end(), '-', '_');
  return app.get_option_no_throw(name) != nullptr;
}

// Returns the first of the words after an option whose value is not in the same word; throws UsageError if there is
// none.
std::string value_after(const CLI::App& app, const CLI::Option& option, const std::string& dashed,
                        std::span<const std::string> words) {
  if (!words.empty() && !is_own_option(app, words.front())) return words.front();
  throw UsageError(dashed + " needs a value: " + dashed + " " + option.get_type_name() +
                   (words.empty() ? "" : ", got the option " + words.front()));
}

[[noreturn]] void refuse_value(const CLI::App& app, const std::string& argument, const std::string& dashed,
                               const std::string& value) {
  if (dashed.size() == 2 && argument.find('=') == std::string::npos) refuse_unknown(app, argument);  // -machine
  throw UsageError(dashed + " takes no value, got '" + value + "'");
}

void replace_foreign(std::vector<std::string>& arguments, std::size_t at, const ForeignUse& use,
                     IgnoredOptions& ignored) {
  const auto begin = arguments.begin() + static_cast<std::ptrdiff_t>(at);
  const auto end = begin + static_cast<std::ptrdiff_t>(use.taken);
  if (!use.ignored.empty()) ignored.add(std::vector<std::string>(begin, end), use.ignored);
  arguments.insert(arguments.erase(begin, end), use.words.begin(), use.words.end());
}

}  // namespace

SplitArguments split_arguments(const OptionTable& table, std::span<const std::string> given) {
  const CLI::App& app = table.app();
  SplitArguments split;
  std::vector<std::string> arguments(given.begin(), given.end());
  IgnoredOptions ignored;
  std::size_t replaced_until = 0;  // the end of the words that replaced another launcher's options
  std::size_t i = 0;
  for (; i < arguments.size(); ++i) {
    const std::string argument = arguments[i];
    if (argument == "--") {
      split.is_separated = true;
      ++i;
      break;
    }
    if (argument.size() < 2 || argument[0] != '-') break;

    if (i >= replaced_until) {
      if (const auto use = foreign_use(std::span(arguments).subspan(i), [&](const std::string& dashed) {
            return app.get_option_no_throw(dashed) != nullptr;
          })) {
        replaced_until = i + use->words.size();
        replace_foreign(arguments, i, *use, ignored);
        --i;
        continue;
      }
    }
    auto [name, value] = split_word(table, argument);
    const std::string dashed = (name.size() == 1 ? "-" : "--") + name;
    const CLI::Option* option = app.get_option_no_throw(dashed);
    if (option == nullptr) refuse_unknown(app, argument);
    if (option->get_items_expected_max() == 0 && value) refuse_value(app, argument, dashed, *value);
    // An omissible value must be in the same word.
    if (!value && option->get_items_expected_min() == 0) {
      split.own.push_back(dashed);
      continue;
    }
    if (!value) value = value_after(app, *option, dashed, std::span(arguments).subspan(++i));
    const std::string long_name = option->get_lnames().empty() ? name : option->get_lnames().front();
    std::erase(split.emptied, long_name);
    if (long_name == "nproc_per_node") {
      split.counts_all_ranks = !argument.starts_with("--");
      (split.counts_all_ranks ? split.all_ranks : split.ranks_of_node) = *value;
    }
    if (!value->empty()) {
      split.own.push_back("--" + long_name + "=" + *value);
      continue;
    }
    if (!table.may_be_empty(long_name))
      throw UsageError(dashed + " needs a value, got an empty one (is a variable of the shell not set?)");
    std::erase_if(split.own, [&](const std::string& word) { return word.starts_with("--" + long_name + "="); });
    split.emptied.push_back(long_name);
  }
  split.remarks = ignored.lines();
  split.program.assign(arguments.begin() + static_cast<std::ptrdiff_t>(i), arguments.end());
  return split;
}

std::optional<std::string> contradicting_ranks(const SplitArguments& split, int nodes) {
  const bool are_numbers = is_whole_number(split.all_ranks) && is_whole_number(split.ranks_of_node);
  if (!are_numbers || split.all_ranks.size() > 9 || split.ranks_of_node.size() > 9) return std::nullopt;
  const long long all = std::stoll(split.all_ranks);
  const long long each = std::stoll(split.ranks_of_node);
  if (all == each || all == each * nodes) return std::nullopt;
  return "-n " + split.all_ranks + " and --nproc_per_node " + split.ranks_of_node +
         " contradict each other: the last one counts, " +
         (split.counts_all_ranks ? "so " + split.all_ranks + " ranks are started"
                                 : "so " + split.ranks_of_node + " are started on each node") +
         "; leave one of them out";
}

}  // namespace launcher

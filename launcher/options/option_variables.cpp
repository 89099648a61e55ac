#include "launcher/options/option_variables.h"

#include <CLI/App.hpp>
#include <CLI/StringTools.hpp>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "launcher/options/option_table.h"
#include "launcher/options/suggestion.h"
#include "launcher/options/usage_error.h"

namespace launcher {
namespace {

// Pairs of options that contradict each other, or that are two forms of the same option. Other pairs that cannot be
// combined are not listed: if one of them were ignored, ddprun would do something that the user did not ask for.
constexpr std::array<std::pair<const char*, const char*>, 20> kAlternatives = {{
    {"prefix", "no_prefix"},
    {"prefix", "log_line_prefix_template"},
    {"no_prefix", "log_line_prefix_template"},
    {"grace", "shutdown_timeout"},
    {"module", "run_path"},
    {"module", "no_python"},
    {"run_path", "no_python"},
    {"output_filename", "redirects"},
    {"output_filename", "tee"},
    {"standalone", "nnodes"},
    {"standalone", "node_rank"},
    {"standalone", "master_port"},
    {"master_addr", "rdzv_endpoint"},
    {"master_port", "rdzv_endpoint"},
    {"join_timeout", "rdzv_conf"},
    {"bind_to", "numa_binding"},
    {"hosts", "hostfile"},
    {"include", "exclude"},
    {"hosts", "nnodes"},
    {"hostfile", "nnodes"},
}};

// The options among `words`; CLI11 compares a word with all names of all options, so each word is looked up once.
std::vector<const CLI::Option*> typed_options(const CLI::App& app, std::span<const std::string> words) {
  std::vector<const CLI::Option*> options;
  for (const std::string& word : words) {
    if (!word.starts_with('-')) continue;
    if (const CLI::Option* option = app.get_option_no_throw(word.substr(0, word.find('=')))) options.push_back(option);
  }
  return options;
}

void ignore_variable(CLI::App& app, const std::string& name) {
  if (CLI::Option* option = app.get_option_no_throw("--" + name)) option->envname("");
}

// CLI11 would name the option, which the user has not typed, and accepts any number.
void check_flag(const CLI::Option& option) {
  constexpr std::array<std::string_view, 8> kChoices = {"1", "true", "yes", "on", "0", "false", "no", "off"};
  const char* value = std::getenv(option.get_envname().c_str());
  if (value == nullptr || *value == '\0') return;
  if (std::find(kChoices.begin(), kChoices.end(), CLI::detail::to_lower(value)) != kChoices.end()) return;
  throw UsageError(option.get_envname() + ": expected 1, true, yes or on, or 0, false, no or off, got '" + value + "'");
}

constexpr const char* kTimeoutVariable = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT";
constexpr int kMaxTimeoutSeconds = 1'000'000'000;

const char* value_of(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr || *value == '\0' ? nullptr : value;
}

void set_grace(const CLI::App& app, Options& options) {
  const bool has_grace = app.count("--grace") > 0;
  if (has_grace && options.shutdown_timeout) {
    throw UsageError("--grace and --shutdown_timeout are two names of one option: give only one of them");
  }
  if (options.shutdown_timeout) options.grace = *options.shutdown_timeout;
  if (has_grace || options.shutdown_timeout) return;
  const char* value = value_of(kTimeoutVariable);
  if (value == nullptr) return;
  options.shutdown_timeout = std::chrono::seconds(parse_number(kTimeoutVariable, value, 0, kMaxTimeoutSeconds));
  options.grace = *options.shutdown_timeout;
}

// Adds a note for each PET_ variable of no option, because a misspelt variable would otherwise be ignored silently.
void note_unknown_variables(const CLI::App& app, Options& options) {
  std::vector<std::string> names;
  for (const CLI::Option* option : declared_options(app)) {
    if (!option->get_envname().empty()) names.push_back(option->get_envname());
    for (const std::string& name : option->get_lnames()) {
      // Also for options whose variable is ignored, and for options without a variable.
      names.push_back(pet_variable(name));
    }
  }
  std::set<std::string> unknown;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (!text.starts_with("PET_")) continue;
    std::string name(text.substr(0, text.find('=')));
    if (std::find(names.begin(), names.end(), name) == names.end()) unknown.insert(std::move(name));
  }
  for (const std::string& name : unknown) {
    const std::string nearest = nearest_name(name, names);
    options.notes.push_back(name + " has no effect: there is no such option" +
                            (nearest.empty() ? "; see ddprun --help" : "; did you mean " + nearest + "?"));
  }
}

// Adds notes for variables of torchrun for which ddprun has no equivalent.
void note_unsupported_variables(Options& options) {
  if (const char* port = value_of("TORCHELASTIC_HEALTH_CHECK_PORT")) {
    options.notes.push_back("TORCHELASTIC_HEALTH_CHECK_PORT=" + std::string(port) +
                            " has no effect: ddprun serves no health check there; --metrics_port " + port +
                            " serves what the ranks are doing over HTTP");
  }
  if (const char* seconds = value_of("TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT")) {
    options.notes.push_back("TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT=" + std::string(seconds) +
                            " has no effect: --hang_timeout with --on_hang ends a job without progress");
  }
}

}  // namespace

void apply_torchrun_variables(const CLI::App& app, Options& options) {
  set_grace(app, options);
  note_unknown_variables(app, options);
  note_unsupported_variables(options);
}

void check_variables_of_flags(const CLI::App& app) {
  for (const CLI::Option* option : declared_options(app)) {
    if (option->get_items_expected_max() == 0 && !option->get_envname().empty()) check_flag(*option);
  }
}

void ignore_outranked_variables(CLI::App& app, const SplitArguments& split) {
  for (const std::string& name : split.emptied) ignore_variable(app, name);
  const std::vector<const CLI::Option*> typed = typed_options(app, split.own);
  const auto is_given = [&](const char* name) {
    return std::any_of(typed.begin(), typed.end(),
                       [&](const CLI::Option* option) { return option->check_lname(name); });
  };
  for (const auto& [first, second] : kAlternatives) {
    const bool has_first = is_given(first);
    const bool has_second = is_given(second);
    if (has_first && !has_second) ignore_variable(app, second);
    if (has_second && !has_first) ignore_variable(app, first);
  }
}

bool is_typed(const CLI::App& app, const CLI::Option* option, std::span<const std::string> words) {
  const std::vector<const CLI::Option*> typed = typed_options(app, words);
  return std::find(typed.begin(), typed.end(), option) != typed.end();
}

std::map<std::string, std::string> variables_in_use(const CLI::App& app, std::span<const std::string> words) {
  std::map<std::string, std::string> variables;
  for (const CLI::Option* option : declared_options(app)) {
    const std::string& variable = option->get_envname();
    const char* const value = variable.empty() ? nullptr : std::getenv(variable.c_str());
    if (value == nullptr || *value == '\0' || is_typed(app, option, words)) continue;
    for (const std::string& name : option->get_snames()) variables["-" + name] = variable;
    for (const std::string& name : option->get_lnames()) variables["--" + name] = variable;
  }
  return variables;
}

}  // namespace launcher

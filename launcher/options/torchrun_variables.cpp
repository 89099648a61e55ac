#include "launcher/options/torchrun_variables.h"

#include <CLI/App.hpp>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/options/option_table.h"
#include "launcher/options/suggestion.h"
#include "launcher/options/usage_error.h"

namespace launcher {
namespace {

constexpr const char* kTimeoutVariable = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT";
constexpr int kLongestTimeout = 1'000'000'000;

const char* value_of(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr || *value == '\0' ? nullptr : value;
}

void take_grace(const CLI::App& app, Options& options) {
  const bool has_grace = app.count("--grace") > 0;
  if (has_grace && options.shutdown_timeout) {
    throw UsageError("--grace and --shutdown_timeout are two names of one time: give one of them");
  }
  if (options.shutdown_timeout) options.grace = *options.shutdown_timeout;
  if (has_grace || options.shutdown_timeout) return;
  const char* value = value_of(kTimeoutVariable);
  if (value == nullptr) return;
  options.shutdown_timeout = std::chrono::seconds(parse_number(kTimeoutVariable, value, 0, kLongestTimeout));
  options.grace = *options.shutdown_timeout;
}

// Of a misspelt variable nobody else would say anything.
void note_unknown_variables(const CLI::App& app, Options& options) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_envname().empty()) names.push_back(option->get_envname());
    for (const std::string& name : option->get_lnames()) {
      names.push_back(pet_variable(name));  // also of an option whose variable was outranked, and of commands
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

// What torchrun does for these, ddprun does not.
void note_unserved_variables(Options& options) {
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

void take_torchruns_variables(const CLI::App& app, Options& options) {
  take_grace(app, options);
  note_unknown_variables(app, options);
  note_unserved_variables(options);
}

}  // namespace launcher

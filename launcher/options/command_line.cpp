#include "launcher/options/command_line.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <utility>

#include "launcher/options/check_options.h"
#include "launcher/options/declare_options.h"
#include "launcher/options/generated_texts.h"
#include "launcher/options/help.h"
#include "launcher/options/option_table.h"
#include "launcher/options/option_variables.h"
#include "launcher/options/program_hints.h"
#include "launcher/options/split_arguments.h"
#include "launcher/options/usage_error.h"
#include "launcher/os/system/launch_error.h"
#include "launcher/os/system/line.h"
#include "launcher/os/version.h"
#include "launcher/plan/host_list.h"
#include "launcher/plan/option_sources.h"
#include "launcher/plan/scheduled_options.h"

namespace launcher {
namespace {

ExitRequest refuse(const std::string& text) {
  return {to_int(ExitStatus::kLauncherError), "ddprun: " + message_text(text) + "\n"};
}

// Returns those options of a node's place that were given, and where each was given.
GivenOptions given_options(const CLI::App& app, const std::vector<std::string>& words) {
  GivenOptions given;
  for (const std::string& name : place_options()) {
    const CLI::Option* option = app.get_option("--" + name);
    if (name == "grace" && option->count() == 0) option = app.get_option("--shutdown_timeout");
    if (option->count() == 0) continue;
    given[name] = is_typed(app, option, words) ? "the command line" : option->get_envname();
  }
  return given;
}

// The number of nodes as far as the command line shows it. Throws LaunchError for an invalid list of hosts.
int shown_nodes(const Options& options) {
  return options.hosts.empty() ? options.nnodes : static_cast<int>(parse_host_list(options.hosts).size());
}

bool is_job_mode(Options::Mode mode) {
  return mode == Options::Mode::kRun || mode == Options::Mode::kDryRun || mode == Options::Mode::kShowEnvironment;
}

// The ddprun that started this one handles these options. This one may still have their variables, which must be
// ignored.
void forget_hosts(Options& options) {
  options.hosts.clear();
  options.host_file.clear();
  options.include.clear();
  options.exclude.clear();
}

std::string version_text(std::string_view commit) {
  return std::string("ddprun ") + kDdprunVersion + " (commit " + std::string(commit) + ")\n";
}

// `options` are the options that `table` fills.
std::variant<Options, ExitRequest> take(const OptionTable& table, std::span<const std::string> given,
                                        SplitArguments split, std::string_view commit, Options& options) {
  CLI::App& app = table.app();
  ignore_outranked_variables(app, split);
  check_variables_of_flags(app);
  options.own_arguments = split.own;
  options.variables = variables_in_use(app, split.own);
  std::reverse(split.own.begin(), split.own.end());  // CLI11 takes a vector from its end
  app.parse(std::move(split.own));
  options.program = std::move(split.program);
  options.is_separated = split.is_separated;
  options.remarks = std::move(split.remarks);
  options.counts_all_ranks = split.counts_all_ranks;
  apply_torchrun_variables(app, options);
  if (options.part_descriptor) forget_hosts(options);
  if (options.mode == Options::Mode::kHelp) return ExitRequest{0, help_text(table)};
  if (options.mode == Options::Mode::kGenerate) return ExitRequest{0, generated_text(options.generated, table)};
  if (options.mode == Options::Mode::kVersion) return ExitRequest{0, version_text(commit)};
  const bool needs_program = options.mode == Options::Mode::kRun || options.mode == Options::Mode::kDryRun;
  if (options.program.empty() && needs_program) throw UsageError(no_program_text(given));
  // A ddprun with a list of hosts, or one that was started by another ddprun, already knows its place.
  const bool is_placed = options.part_descriptor || !options.hosts.empty() || !options.host_file.empty();
  if (is_job_mode(options.mode) && !is_placed)
    apply_scheduler(process_context(), given_options(app, options.own_arguments), options);
  check_options(options);
  if (options.host_file.empty() && !split.all_ranks.empty() && !split.ranks_of_node.empty()) {
    if (const auto line = contradicting_ranks(split, shown_nodes(options))) options.remarks.push_back(*line);
  }
  return options;
}

std::variant<Options, ExitRequest> parse(std::span<const std::string> arguments, std::string_view commit) {
  CLI::App app(
      "Starts one process per rank of a distributed program and ends them together.\n"
      "Everything after PROGRAM belongs to the program and is passed on untouched.\n"
      "`ddprun status [JOB]` and `ddprun top [JOB]` show what running jobs are doing,\n"
      "`ddprun stack [JOB] [RANK ...]` where the threads of their ranks are;\n"
      "`ddprun timeline start|stop [JOB]` records it. Each has its own --help.",
      "ddprun [OPTIONS] [--] PROGRAM [ARGUMENTS...]");
  Options options;
  OptionTable table(app);
  declare_options(table, options);
  const SplitArguments split = split_arguments(table, arguments);
  try {
    return take(table, arguments, split, commit, options);
  } catch (const UsageError& error) {
    throw UsageError(error.what() + option_sources(error.what(), variables_in_use(app, split.own)));
  }
}

}  // namespace

std::variant<Options, ExitRequest> parse_command_line(std::span<const std::string> arguments, std::string_view commit) {
  try {
    return parse(arguments, commit);
  } catch (const UsageError& error) {
    return refuse(error.what());
  } catch (const CLI::ParseError& error) {
    return refuse(error.what());
  }
}

}  // namespace launcher

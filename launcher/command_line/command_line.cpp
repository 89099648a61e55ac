#include "launcher/command_line/command_line.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <utility>

#include "launcher/command_line/check_options.h"
#include "launcher/command_line/declare_options.h"
#include "launcher/command_line/generated_texts.h"
#include "launcher/command_line/help.h"
#include "launcher/command_line/outranked_variables.h"
#include "launcher/command_line/split_arguments.h"
#include "launcher/command_line/usage_error.h"
#include "launcher/system/exit_status.h"
#include "launcher/version.h"

namespace launcher {
namespace {

ExitRequest refuse(const std::string& text) {
  return {to_int(ExitStatus::kLauncherError), "ddprun: " + text + "\n"};
}

// The ddprun that has started this one has them, and this one their variables.
void forget_hosts(Options& options) {
  options.hosts.clear();
  options.host_file.clear();
  options.include.clear();
  options.exclude.clear();
}

std::variant<Options, ExitRequest> parse(std::span<const std::string> arguments) {
  CLI::App app(
      "Starts one process per rank of a distributed program and ends them together.\n"
      "Everything after PROGRAM belongs to the program and is passed on untouched.",
      "ddprun [OPTIONS] [--] PROGRAM [ARGUMENTS...]");
  Options options;
  declare_options(app, options);

  SplitArguments split = split_arguments(app, arguments);
  ignore_outranked_variables(app, split);
  options.own_words = split.own;
  std::reverse(split.own.begin(), split.own.end());  // CLI11 takes a vector from its back
  app.parse(std::move(split.own));
  options.program = std::move(split.program);
  options.counts_all_ranks = split.counts_all_ranks;
  if (options.part_descriptor) forget_hosts(options);
  if (options.mode == Options::Mode::kHelp) return ExitRequest{0, help_text(app)};
  if (options.mode == Options::Mode::kGenerate) return ExitRequest{0, generated_text(options.generated, app)};
  if (options.mode == Options::Mode::kVersion) return ExitRequest{0, std::string("ddprun ") + kVersion + "\n"};
  check_options(options);
  return options;
}

}  // namespace

std::variant<Options, ExitRequest> parse_command_line(std::span<const std::string> arguments) {
  try {
    return parse(arguments);
  } catch (const UsageError& error) {
    return refuse(error.what());
  } catch (const CLI::ParseError& error) {
    return refuse(error.what());
  }
}

}  // namespace launcher

#include "launcher/output_options.h"

#include <CLI/CLI.hpp>
#include <tuple>

namespace launcher {

void declare_output_options(CLI::App& app, OutputValues& values) {
  const std::string output = "What they print";
  app.add_option("--log_dir", values.log_folder,
                 "Folder for log files: DIR/<run>/attempt_<n>/<local rank>/{stdout.log,stderr.log,error.json} (none)")
      ->type_name("DIR")
      ->group(output);
  app.add_option(
         "-r,--redirects", values.redirects,
         "Streams that go to log files only: 0 none, 1 stdout, 2 stderr, 3 both; or by local rank: 0:3,11:1 (0)")
      ->type_name("STREAMS")
      ->group(output);
  app.add_option("-t,--tee", values.tee, "Streams that go to log files and to the console, named like those of -r (0)")
      ->type_name("STREAMS")
      ->group(output);
  app.add_option("--local_ranks_filter", values.console_ranks, "Local ranks whose output is shown, as in 0,3 (all)")
      ->type_name("LIST")
      ->group(output);
  app.add_option("--duplicate_stdout_filters", values.output_filters,
                 "Copy lines with one of these texts to filtered_stdout.log among the log files (none)")
      ->type_name("TEXT,...")
      ->group(output);
  app.add_option("--duplicate_stderr_filters", values.error_filters, "The same for standard error (none)")
      ->type_name("TEXT,...")
      ->group(output);
  app.add_option("--output_filename", values.output_folder,
                 "Copy the output of each rank to DIR/rank.<rank>/{stdout,stderr} (none)")
      ->type_name("DIR")
      ->group(output);
  app.add_option("--stdin", values.standard_input, "Who reads ddprun's standard input: a rank, all or none (0)")
      ->type_name("RANK|all|none")
      ->group(output);
}

std::string read_output_options(const OutputValues& values, Options& options) {
  for (const auto& [name, text, selection] : {std::tuple("--redirects", &values.redirects, &options.redirects),
                                              std::tuple("--tee", &values.tee, &options.tee)}) {
    const auto parsed = StreamSelection::parse(*text);
    if (!parsed) return std::string(name) + ": expected 0, 1, 2, 3 or RANK:0..3,..., got '" + *text + "'";
    *selection = *parsed;
  }
  if (!values.console_ranks.empty()) {
    const auto ranks = parse_rank_list(values.console_ranks);
    if (!ranks) return "--local_ranks_filter: expected numbers and commas, got '" + values.console_ranks + "'";
    options.console_ranks = *ranks;
  }
  options.log_folder = values.log_folder;
  options.output_filters = parse_text_list(values.output_filters);
  options.error_filters = parse_text_list(values.error_filters);
  options.output_folder = values.output_folder;
  if (!options.output_folder.empty() && !(options.redirects.is_empty() && options.tee.is_empty())) {
    return "--output_filename and --redirects or --tee exclude each other";
  }
  if (values.standard_input == "all") {
    options.standard_input = {StandardInput::To::kAll};
  } else if (values.standard_input == "none") {
    options.standard_input = {StandardInput::To::kNone};
  } else if (!CLI::detail::lexical_cast(values.standard_input, options.standard_input.rank) ||
             options.standard_input.rank < 0) {
    return "--stdin: expected a rank, all or none, got '" + values.standard_input + "'";
  }
  return "";
}

}  // namespace launcher

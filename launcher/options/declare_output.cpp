#include <string>
#include <vector>

#include "launcher/local/output/prefix_template.h"
#include "launcher/options/declare_options.h"
#include "launcher/options/option_table.h"
#include "launcher/options/usage_error.h"

namespace launcher {
namespace {

StreamSelection parse_streams(const std::string& option, const std::string& text) {
  const auto streams = StreamSelection::parse(text);
  const bool is_time = option == "--tee" && text.find_first_not_of("0123456789:") == std::string::npos;  // srun's -t
  if (!streams)
    throw UsageError(option +
                     ": expected 0 (nothing), 1 (stdout), 2 (stderr) or 3 (both), or one of these for each rank, such "
                     "as 0:3,1:2; got " +
                     quoted_value(text) + (is_time ? " (a limit of time is --timeout SECONDS)" : ""));
  return *streams;
}

std::vector<int> parse_shown_ranks(const std::string& text) {
  const auto ranks = parse_rank_list(text);
  if (!ranks)
    throw UsageError("--local_ranks_filter: expected numbers and commas, such as 0,3, got " + quoted_value(text));
  return *ranks;
}

std::string ranks_text(const std::vector<int>& ranks) {
  std::vector<std::string> words;
  for (const int rank : ranks) words.push_back(std::to_string(rank));
  return joined(words, ",");
}

StandardInput parse_standard_input(const std::string& text) {
  if (text == "all") return {StandardInput::To::kAll};
  if (text == "none") return {StandardInput::To::kNone};
  return {StandardInput::To::kRank,
          parse_number("--stdin", text, 0, Options::kMaxLocalRanks, " (a rank), all or none")};
}

std::string reader_text(const StandardInput& input) {
  if (input.to == StandardInput::To::kRank) return std::to_string(input.rank);
  return input.to == StandardInput::To::kAll ? "all" : "none";
}

// Joins the texts with commas. A comma within a text is doubled.
std::string filters_text(std::vector<std::string> filters) {
  for (std::string& filter : filters) filter = joined(split_at_commas(filter), ",,");
  return joined(filters, ",");
}

void declare_prefixes(OptionTable& table, OutputOptions& options) {
  const std::string usual(PrefixTemplate::kDefault);
  table.optional_text({"--prefix TEMPLATE",
                       "Text in front of each line, with `{rank}`, `{local_rank}`, `{host}`, `{stream}` and `{time}`; "
                       "`horovod` is `[1,{rank}]<{stream}>:`",
                       "",
                       {.unset = "'" + usual + "'; with one rank: nothing"}},
                      options.prefix, usual);
  table.flag({"--no_prefix", "Ranks write to ddprun's own output directly"}, options.no_prefix);
}

void declare_copies(OptionTable& table, OutputOptions& options) {
  table.parsed(torchrun_option({"--duplicate_stdout_filters TEXT,...",
                                "Copy lines with one of these texts to `filtered_stdout.log` among the log files",
                                "In the attempt's folder; `,,` is a comma within a text."}),
               filters_text(options.output_filters),
               [&](const std::string& text) { options.output_filters = parse_text_list(text); });
  table.parsed(torchrun_option({"--duplicate_stderr_filters TEXT,...", "The same for standard error"}),
               filters_text(options.error_filters),
               [&](const std::string& text) { options.error_filters = parse_text_list(text); });
  table.text({"--output_filename DIR", "Copy the output of each rank to `DIR/rank.<rank>/{stdout,stderr}`",
              "As horovodrun and mpirun do."},
             options.output_folder);
}

}  // namespace

void declare_output(OptionTable& table, OutputOptions& options) {
  table.group("Output");
  declare_prefixes(table, options);
  table.text(
      torchrun_option({"--log_dir DIR",
                       "Folder for log files: `DIR/<run>/attempt_<n>/<local rank>/{stdout.log,stderr.log,error.json}`",
                       "Created if missing; [log files](#log-files)."}),
      options.log_folder);
  table.parsed(
      torchrun_option(
          {"-r,--redirects STREAMS",
           "Streams that go to log files only: 0 none, 1 stdout, 2 stderr, 3 both; or by local rank: `0:3,11:1`"}),
      options.redirects.text(),
      [&](const std::string& text) { options.redirects = parse_streams("--redirects", text); });
  table.parsed(
      torchrun_option({"-t,--tee STREAMS", "Streams that go to log files and to the console, in the notation of `-r`",
                       "Outranks `-r`."}),
      options.tee.text(), [&](const std::string& text) { options.tee = parse_streams("--tee", text); });
  table.parsed({"--local_ranks_filter LIST",
                "Local ranks whose output is shown, as in `0,3`",
                "Log files have the output of all.",
                {.unset = "all", .is_torchrun_option = true}},
               ranks_text(options.console_ranks),
               [&](const std::string& text) { options.console_ranks = parse_shown_ranks(text); });
  declare_copies(table, options);
  table.parsed({"--stdin RANK|all|none", "Ranks that read ddprun's standard input"},
               reader_text(options.standard_input),
               [&](const std::string& text) { options.standard_input = parse_standard_input(text); });
  table.text({"--events FILE", "Append one JSON line per start, exit, restart, failure and end", "[Events](#events)."},
             options.event_file);
}

}  // namespace launcher

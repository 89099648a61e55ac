// ddprun-timeline: analyses where a recorded training run spends its time.
#include <CLI/CLI.hpp>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "base/terminal_size.h"
#include "base/tool_status.h"
#include "timeline/analysis.h"
#include "timeline/cycles.h"
#include "timeline/forecast_report.h"
#include "timeline/merge.h"
#include "timeline/rank_lines.h"
#include "timeline/report.h"
#include "timeline/svg.h"
#include "timeline/trace_reader.h"
#include "timeline/what_if.h"

namespace {

using namespace ddp::timelines;
using namespace ddp::tool_status;

struct Options {
  std::string file;
  std::string svg;
  std::optional<Scenario> what_if;
  bool json = false;
  std::vector<std::string> parts;
  std::string out;
};

void print(const std::string& text) {
  if (std::fputs(text.c_str(), stdout) < 0 || std::fflush(stdout) != 0) {
    throw TraceError(std::string("standard output cannot be written: ") + std::strerror(errno));
  }
}

// Calls `read` and adds the file name to its errors.
template <typename Read>
auto of_file(const Options& options, Read read) {
  try {
    return read();
  } catch (const TraceError& error) {
    throw TraceError(options.file + ": " + error.what());
  }
}

void explain(const Options& options) {
  std::ifstream file = open_trace(options.file);
  const Trace trace = of_file(options, [&] { return read_trace(file); });
  const auto lines = rank_lines(trace);
  if (options.what_if) {
    const Cycles cycles = of_file(options, [&] { return cycles_of(trace, lines); });
    return print(options.json
                     ? forecast_json(cycles, *options.what_if)
                     : forecast_text(cycles, *options.what_if, ddp::detail::terminal_size(STDOUT_FILENO).columns));
  }
  const Analysis analysis = analyse(lines);
  if (!options.svg.empty()) {
    std::ofstream picture(options.svg);
    picture << draw_svg(trace, lines, analysis) << std::flush;
    if (!picture) throw TraceError(options.svg + ": the picture cannot be written: " + std::strerror(errno));
  }
  print(options.json ? report_json(trace, lines, analysis)
                     : report_text(trace, lines, analysis, ddp::detail::terminal_size(STDOUT_FILENO).columns));
}

void merge(const Options& options) {
  const MergeResult result = merge_traces(options.parts, options.out);
  for (const std::string& file : result.by_time_of_day) {
    std::fprintf(stderr, "%s is from another host than %s, so it was aligned by wall-clock time\n", file.c_str(),
                 options.parts.front().c_str());
  }
  print(options.out + ": " + std::to_string(result.events) + " events\n");
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Shows how steps spend their time, from a file that `ddprun --timeline FILE` or\n"
      "ddp::Timeline has recorded.",
      "ddprun-timeline");
  Options options;
  app.add_option("FILE", options.file, "The timeline");
  auto* svg = app.add_option("--svg", options.svg, "Draw a step of median length to this file");
  app.add_flag("--json", options.json, "Print JSON");
  std::string what_if;
  app.add_option("--what-if", what_if, kWhatIfHelp)->type_name("KEY=VALUE,...")->excludes(svg);
  auto* join = app.add_subcommand("merge", "Join files of several ranks or nodes");
  join->add_option("-o,--out", options.out, "The file to write")->required();
  join->add_option("FILES", options.parts, "trace.rank0.json trace.rank1.json ...")->required();
  app.footer(
      "Exit status: 0; 1 when a file cannot be read or written, or is not a timeline;\n"
      "2 when the command line is wrong.");
  try {
    app.parse(argc, argv);
    if (!join->parsed() && options.file.empty()) throw CLI::RequiredError("FILE");
    if (app.count("--what-if") > 0) options.what_if = parse_what_if(what_if);
  } catch (const WhatIfError& error) {
    std::fprintf(stderr, "ddprun-timeline: --what-if: %s\n", error.what());
    return kMisused;
  } catch (const CLI::ParseError& error) {
    if (app.exit(error) != 0) return kMisused;
    return output_is_written("ddprun-timeline") ? kGood : kFailed;
  }
  try {
    join->parsed() ? merge(options) : explain(options);
    return kGood;
  } catch (const std::bad_alloc&) {
    std::fputs("ddprun-timeline: out of memory\n", stderr);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "ddprun-timeline: %s\n", error.what());
  }
  return kFailed;
}

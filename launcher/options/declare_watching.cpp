#include <charconv>
#include <cmath>
#include <limits>
#include <string>
#include <system_error>

#include "launcher/options/declare_options.h"
#include "launcher/options/option_table.h"
#include "launcher/options/usage_error.h"

namespace launcher {
namespace {

// PORT, or ADDRESS:PORT.
void read_metrics_address(const std::string& text, WatchOptions& options) {
  const std::size_t colon = text.rfind(':');
  std::string host = colon == std::string::npos ? options.metrics_host : text.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  options.metrics_host = host;
  options.metrics_port = static_cast<std::uint16_t>(
      parse_number("--metrics_port", colon == std::string::npos ? text : text.substr(colon + 1), 0, 65535));
}

double read_percent(const std::string& text) {
  constexpr double kMax = 10'000;
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_in_range = value >= 0 && value <= kMax;  // false also for what is not a number
  if (error != std::errc() || end != text.data() + text.size() || !is_in_range) {
    throw UsageError("--straggler_threshold: expected a number of percent from 0 to 10000, got '" + text + "'");
  }
  return value / 100;
}

std::uint64_t parse_step(const std::string& text, const std::string& whole) {
  std::uint64_t step = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, step);
  if (text.empty() || error != std::errc() || stop != end) {
    throw UsageError("--timeline_steps: expected FIRST:LAST, two step numbers, got '" + whole + "'");
  }
  return step;
}

// Parses FIRST:LAST in the form of Python's slices. Either number may be omitted; a single number without a colon means
// one step.
void read_steps(const std::string& text, WatchOptions& options) {
  if (text == ":") throw UsageError("--timeline_steps: expected FIRST:LAST, two step numbers, got ':'");
  const std::size_t colon = text.find(':');
  WatchOptions::StepRange steps{.first = 0, .last = std::numeric_limits<std::uint64_t>::max()};
  const std::string first = text.substr(0, colon);
  const std::string last = colon == std::string::npos ? "" : text.substr(colon + 1);
  if (colon == std::string::npos || !first.empty()) steps.first = parse_step(first, text);
  if (colon == std::string::npos) {
    steps.last = steps.first + 1;
  } else if (!last.empty()) {
    steps.last = parse_step(last, text);
  }
  if (steps.last <= steps.first) throw UsageError("--timeline_steps: expected FIRST below LAST, got '" + text + "'");
  options.timeline_steps = steps;
}

std::string metrics_text(const WatchOptions& options) {
  return options.metrics_port ? options.metrics_host + ":" + std::to_string(*options.metrics_port) : "";
}

std::string steps_text(const WatchOptions& options) {
  if (!options.timeline_steps) return "";
  return std::to_string(options.timeline_steps->first) + ":" + std::to_string(options.timeline_steps->last);
}

}  // namespace

void declare_watching(OptionTable& table, WatchOptions& options) {
  table.group("Monitoring",
              "[watching.md](watching.md) has what is known of each rank, `ddprun status` and `ddprun top`.");
  OptionText hang = {
      "--hang_timeout SECONDS",
      "When no rank makes progress for this long, report the rank that the others wait for",
      "[When it hangs](watching.md#when-it-hangs). Jobs that do not train are reported only if the option is given.",
      {.zero = "never"}};
  table.parsed(hang, shown_seconds(options.hang_timeout), [&](const std::string& text) {
    options.hang_timeout = parse_seconds("--hang_timeout", text);
    options.has_hang_timeout = true;
  });
  using OnHang = WatchOptions::OnHang;
  table.choice({"--on_hang", "What to do after that report: nothing more, stop the job with status 124, or restart it"},
               options.on_hang, {{"report", OnHang::kReport}, {"stop", OnHang::kStop}, {"restart", OnHang::kRestart}});
  table.text({"--on_hang_command COMMAND",
              "Run COMMAND by /bin/sh when that report is printed, before the job is stopped or restarted",
              "[Its variables](watching.md#a-command-for-each-hang). On several nodes the first one runs it."},
             options.on_hang_command);
  table.parsed({"--straggler_threshold PERCENT",
                "Report a rank whose own time per step is this much above the median of all, and print at the end how "
                "the time was spent",
                "[A rank that delays the others](watching.md#when-one-rank-delays-the-others).",
                {.zero = "never"}},
               shown_number(std::round(options.straggler_threshold * 1e6) / 1e4),
               [&](const std::string& text) { options.straggler_threshold = read_percent(text); });
  table.parsed({"--metrics_port [ADDRESS:]PORT",
                "Serve what each rank is doing as OpenMetrics at /metrics, on loopback unless an address is given; "
                "port 0: a free one, which is printed",
                "[Look in](watching.md#look-in)."},
               metrics_text(options), [&](const std::string& text) { read_metrics_address(text, options); });
  table.text({"--timeline,--timeline_filename FILE",
              "Write what each rank does and when to FILE, for Perfetto and ddprun-timeline",
              "[Timeline](watching.md#timeline). The second name is Horovod's."},
             options.timeline_file);
  table.parsed({"--timeline_steps FIRST:LAST",
                "Only the steps from FIRST, counted from 0, to LAST - 1; `FIRST:` is from there on, `:LAST` up to "
                "there, FIRST alone that step",
                "",
                {.unset = "all"}},
               steps_text(options), [&](const std::string& text) { read_steps(text, options); });
}

}  // namespace launcher

#include <charconv>
#include <limits>
#include <string>
#include <system_error>

#include "launcher/options/declare_options.h"
#include "launcher/options/option_table.h"
#include "launcher/options/usage_error.h"

namespace launcher {
namespace {

// PORT, or ADDRESS:PORT.
void read_metrics_address(const std::string& text, Options& options) {
  const std::size_t colon = text.rfind(':');
  std::string host = colon == std::string::npos ? options.metrics_host : text.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  options.metrics_host = host;
  options.metrics_port = static_cast<std::uint16_t>(
      parse_number("--metrics_port", colon == std::string::npos ? text : text.substr(colon + 1), 0, 65535));
}

double read_percent(const std::string& text) {
  constexpr double kMost = 10'000;
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_in_range = value >= 0 && value <= kMost;  // false also for what is not a number
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
    throw UsageError("--timeline_steps: expected FIRST:LAST, numbers of steps, got '" + whole + "'");
  }
  return step;
}

// FIRST:LAST as Python's slices have it; either may be left out, and with the colon there is one step.
void read_steps(const std::string& text, Options& options) {
  if (text == ":") throw UsageError("--timeline_steps: expected FIRST:LAST, numbers of steps, got ':'");
  const std::size_t colon = text.find(':');
  Options::StepRange steps{.first = 0, .last = std::numeric_limits<std::uint64_t>::max()};
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

}  // namespace

void declare_watching(OptionTable& table, Options& options) {
  table.group("How it is watched");
  table.seconds("--hang_timeout", options.hang_timeout,
                "Without progress of any rank, report who holds up whom; unless given: 120; 0: never");
  using OnHang = Options::OnHang;
  table.choice("--on_hang",
               {{"report", [&] { options.on_hang = OnHang::kReport; }},
                {"stop", [&] { options.on_hang = OnHang::kStop; }},
                {"restart", [&] { options.on_hang = OnHang::kRestart; }}},
               "What follows on that report: nothing, the end of the job with status 124, or a restart");
  table.parsed(
      "--straggler_threshold", [&](const std::string& text) { options.straggler_threshold = read_percent(text); },
      "PERCENT", "10",
      "Report a rank whose own time in a step is so much above the median of all, and in the end where the time went; "
      "0: never");
  table.parsed(
      "--metrics_port", [&](const std::string& text) { read_metrics_address(text, options); }, "[ADDRESS:]PORT", "none",
      "Serve what each rank is doing as OpenMetrics at /metrics, on loopback unless an address is given; port 0: a "
      "free "
      "one, which is told");
  table.text("--timeline,--timeline_filename", options.timeline_file, "FILE", "none",
             "Write what each rank does and when to FILE, for Perfetto and ddprun-timeline");
  table.parsed(
      "--timeline_steps", [&](const std::string& text) { read_steps(text, options); }, "FIRST:LAST", "all",
      "Only steps from number FIRST, counted from 0, up to and without LAST; FIRST: from there on, :LAST up to there, "
      "FIRST alone that one");
}

}  // namespace launcher

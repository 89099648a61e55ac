// ddprun-curves: draws the curves of event files as an image.
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include <ddprun/base/option_checks.h>

#include "base/tool_status.h"
#include "base/utf8.h"
#include "monitor/curves/pixels.h"
#include "monitor/curves/scalars.h"
#include "monitor/curves/svg.h"
#include "monitor/errno_text.h"

namespace {

using namespace ddp::curves;
using namespace ddp::tool_status;

struct Options {
  std::vector<std::string> paths;
  std::string out = "curves.svg";
  std::vector<std::string> tags;
  std::string x = "step";
  double smooth = 0;
  double scale = 2;
  ChartOptions charts;
};

void add_options(CLI::App& app, Options& options) {
  app.add_option("PATH", options.paths, "Event files, or folders with event files")->required();
  app.add_option("-o,--out", options.out, "The picture to write: .png or .svg")->capture_default_str();
  app.add_option("--tag", options.tags, "Only tags with this prefix; repeatable");
  app.add_option("--x", options.x, "Horizontal axis: step, or seconds")
      ->check(CLI::IsMember({"step", "time"}))
      ->capture_default_str();
  app.add_option("--smooth", options.smooth, "Smoothing factor, 0 to below 1")
      ->check(ddp::finite(0, 0.999999))
      ->capture_default_str();
  app.add_option("--columns", options.charts.columns, "Charts in a row")
      ->check(ddp::whole(1, 100))
      ->capture_default_str();
  app.add_option("--width", options.charts.width, "Width of a chart in pixels")
      ->check(ddp::whole(150, 10000))
      ->capture_default_str();
  app.add_option("--height", options.charts.height, "Height of a chart in pixels")
      ->check(ddp::whole(120, 10000))
      ->capture_default_str();
  app.add_option("--scale", options.scale, "PNG: scale factor of width and height")
      ->check(ddp::finite(0.5, 10))
      ->capture_default_str();
}

enum class Format { kSvg, kPng };

Format format_of(const std::string& out) {
  std::string extension = std::filesystem::path(out).extension().string();
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  if (extension == ".svg") return Format::kSvg;
  if (extension == ".png") return Format::kPng;
  throw std::runtime_error(out + ": expected a picture that ends in .png or .svg");
}

bool is_wanted(const std::string& tag, const Options& options) {
  if (options.tags.empty()) return true;
  for (const std::string& beginning : options.tags) {
    if (tag.starts_with(beginning)) return true;
  }
  return false;
}

Line line_of(const std::string& label, const Curve& curve, const Options& options) {
  Line line{.label = label};
  for (const Point& point : curve) {
    line.x.push_back(options.x == "time" ? point.wall_time - curve.front().wall_time : static_cast<double>(point.step));
    line.y.push_back(point.value);
  }
  line.y = smoothed(line.y, options.smooth);
  return line;
}

/// Returns the name of a run in the legend: its folder, or an empty string if there is only one run.
std::string label_of(const std::string& path, const Run& run, size_t runs_of_path, size_t paths) {
  if (paths > 1) return run.name == "." ? path : path + "/" + run.name;
  if (run.name != ".") return run.name;
  return runs_of_path > 1 ? std::filesystem::absolute(path).lexically_normal().filename().string() : "";
}

void add_run(const std::string& label, const Run& run, const Options& options, std::map<std::string, Chart>& charts) {
  for (const auto& [tag, curve] : run.curves) {
    if (!is_wanted(tag, options)) continue;
    Chart& chart = charts[tag];
    chart.title = tag;
    chart.x_label = options.x == "time" ? "seconds" : "step";
    chart.lines.push_back(line_of(label, curve, options));
  }
}

/// Whether the chart shows a metric of the HParams page with a single value per run. `metrics` contains the tags that
/// this page lists. In files without the page, such tags are recognised by their usual prefix.
bool is_lone_metric(const Chart& chart, const std::set<std::string>& metrics) {
  return (metrics.contains(chart.title) || chart.title.starts_with("hparam/")) &&
         std::all_of(chart.lines.begin(), chart.lines.end(), [](const Line& line) { return line.x.size() < 2; });
}

/// Returns `tag` as a word for a shell. It is quoted unless every shell accepts it without quotes.
std::string as_word(const std::string& tag) {
  const auto is_plain = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '/'; };
  if (std::all_of(tag.begin(), tag.end(), is_plain)) return tag;
  std::string word = "'";
  for (const char c : ddp::detail::shown_text(tag)) word += c == '\'' ? "'\\''" : std::string(1, c);
  return word + "'";
}

/// Removes the metrics of the HParams page unless the user requested them or there are no other charts. Each of them
/// has one value per run and therefore no curve.
void leave_out_lone_metrics(const std::set<std::string>& metrics, const Options& options, std::vector<Chart>& charts) {
  const auto is_lone = [&](const Chart& chart) { return is_lone_metric(chart, metrics); };
  if (!options.tags.empty() || std::all_of(charts.begin(), charts.end(), is_lone)) return;
  for (const Chart& chart : charts) {
    if (!is_lone(chart)) continue;
    std::printf("left out: %s, which has only one value (--tag %s draws it)\n",
                ddp::detail::shown_text(chart.title).c_str(), as_word(chart.title).c_str());
  }
  std::erase_if(charts, is_lone);
}

[[noreturn]] void refuse_without_curves(const Options& options, const std::set<std::string>& tags) {
  if (tags.empty()) throw std::runtime_error("no curve in these event files");
  std::string message = "no curve whose tag begins with";
  for (const std::string& beginning : options.tags) message += " '" + beginning + "'";
  message += "; there are:";
  for (const std::string& tag : tags) message += " '" + ddp::detail::shown_text(tag) + "'";
  throw std::runtime_error(message);
}

std::vector<Chart> read_charts(const Options& options) {
  std::map<std::string, Chart> by_tag;
  std::set<std::string> tags;
  std::set<std::string> metrics;
  for (const std::string& path : options.paths) {
    const Runs found = read_runs(path);
    for (const std::string& problem : found.problems) std::fprintf(stderr, "warning: %s\n", problem.c_str());
    metrics.insert(found.metrics.begin(), found.metrics.end());
    for (const Run& run : found.runs) {
      for (const auto& [tag, curve] : run.curves) tags.insert(tag);
      add_run(label_of(path, run, found.runs.size(), options.paths.size()), run, options, by_tag);
    }
  }
  if (by_tag.empty()) refuse_without_curves(options, tags);
  std::vector<Chart> charts;
  for (auto& [tag, chart] : by_tag) charts.push_back(std::move(chart));
  leave_out_lone_metrics(metrics, options, charts);
  return charts;
}

}  // namespace

int main(int argc, char** argv) try {
  CLI::App app("Draws the curves of TensorBoard event files as a picture.");
  app.get_formatter()->column_width(28);
  Options options;
  add_options(app, options);
  app.footer("Exit status: 0; 1 when something cannot be read, drawn or written;\n2 when the command line is wrong.");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (app.exit(error) != 0) return kMisused;
    return output_is_written("ddprun-curves") ? kGood : kFailed;
  }
  const Format format = format_of(options.out);  // before any file is read
  const std::vector<Chart> charts = read_charts(options);
  const std::string picture =
      format == Format::kPng ? draw_png(charts, options.charts, options.scale) : draw_svg(charts, options.charts);
  errno = 0;
  std::ofstream out(options.out, std::ios::binary | std::ios::trunc);
  out << picture;
  if (!out.flush()) throw std::runtime_error(options.out + ": cannot be written: " + ddp::detail::errno_text());
  std::printf("%s: %zu %s\n", options.out.c_str(), charts.size(), charts.size() == 1 ? "chart" : "charts");
  return output_is_written("ddprun-curves") ? kGood : kFailed;
} catch (const std::exception& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return kFailed;
}

// ddprun-curves: the curves of event files as an SVG picture.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <fstream>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "monitor/curves/scalars.h"
#include "monitor/curves/svg.h"

namespace {

using namespace ddp::curves;

struct Options {
  std::vector<std::string> paths;
  std::string out = "curves.svg";
  std::vector<std::string> tags;
  std::string x = "step";
  double smooth = 0;
  SvgOptions svg;
};

void add_options(CLI::App& app, Options& options) {
  app.add_option("PATH", options.paths, "Event files, or folders with event files in them or below")->required();
  app.add_option("-o,--out", options.out, "The picture to write")->capture_default_str();
  app.add_option("--tag", options.tags, "Only curves whose tag begins with this; may be repeated");
  app.add_option("--x", options.x, "Horizontal axis: step, or time in seconds since the curve began")
      ->check(CLI::IsMember({"step", "time"}))
      ->capture_default_str();
  app.add_option("--smooth", options.smooth, "Weight of the past, from 0 to below 1, as TensorBoard's slider")
      ->check(CLI::Range(0.0, 0.999999))
      ->capture_default_str();
  app.add_option("--columns", options.svg.columns, "Charts beside each other")
      ->check(CLI::Range(1, 100))
      ->capture_default_str();
  app.add_option("--width", options.svg.width, "Pixels of a chart")
      ->check(CLI::Range(150, 10000))
      ->capture_default_str();
  app.add_option("--height", options.svg.height, "Pixels of a chart")
      ->check(CLI::Range(120, 10000))
      ->capture_default_str();
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

void add_run(const std::string& path, const Run& run, const Options& options, std::map<std::string, Chart>& charts) {
  std::string label = run.name == "." ? "" : run.name;
  if (options.paths.size() > 1) label = label.empty() ? path : path + "/" + label;
  for (const auto& [tag, curve] : run.curves) {
    if (!is_wanted(tag, options)) continue;
    Chart& chart = charts[tag];
    chart.title = tag;
    chart.x_label = options.x == "time" ? "seconds" : "step";
    chart.lines.push_back(line_of(label, curve, options));
  }
}

}  // namespace

int main(int argc, char** argv) try {
  CLI::App app("Draws the curves of TensorBoard event files as an SVG picture.");
  Options options;
  add_options(app, options);
  CLI11_PARSE(app, argc, argv);
  std::map<std::string, Chart> by_tag;
  for (const std::string& path : options.paths) {
    const Runs found = read_runs(path);
    for (const std::string& problem : found.problems) std::fprintf(stderr, "warning: %s\n", problem.c_str());
    for (const Run& run : found.runs) add_run(path, run, options, by_tag);
  }
  if (by_tag.empty()) throw std::runtime_error("no such curve in these event files");
  std::vector<Chart> charts;
  for (auto& [tag, chart] : by_tag) charts.push_back(std::move(chart));
  std::ofstream out(options.out, std::ios::binary | std::ios::trunc);
  out << draw_svg(charts, options.svg);
  if (!out.flush()) throw std::runtime_error(options.out + ": cannot be written");
  std::printf("%s: %zu %s\n", options.out.c_str(), charts.size(), charts.size() == 1 ? "chart" : "charts");
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return 1;
}

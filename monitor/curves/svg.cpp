#include "monitor/curves/svg.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>
#include <string_view>

#include "monitor/curves/axis.h"
#include "monitor/utf8.h"

namespace ddp::curves {
namespace {

constexpr double kLeft = 62;
constexpr double kRight = 16;
constexpr double kTop = 32;
constexpr double kBottom = 40;
constexpr double kLegendLine = 15;
constexpr size_t kLongestLegend = 12;
// Okabe and Ito's colours, which people with any kind of colour vision can tell apart.
constexpr std::array<std::string_view, 7> kColours = {"#0072B2", "#D55E00", "#009E73", "#CC79A7",
                                                      "#E69F00", "#56B4E9", "#000000"};

std::string number(double value) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.1f", value);
  return text.data();
}

std::string escaped(const std::string& text) {
  std::string safe;
  for (const char byte : valid_utf8(text)) {
    switch (byte) {
      case '&':
        safe += "&amp;";
        break;
      case '<':
        safe += "&lt;";
        break;
      case '>':
        safe += "&gt;";
        break;
      case '"':
        safe += "&quot;";
        break;
      default:
        safe += static_cast<unsigned char>(byte) < 0x20 ? ' ' : byte;  // XML has no other control characters
    }
  }
  return safe;
}

void add_text(std::string& svg, double x, double y, std::string_view attributes, const std::string& text) {
  svg.append("<text x=\"").append(number(x)).append("\" y=\"").append(number(y)).append("\" ");
  svg.append(attributes).append(">").append(escaped(text)).append("</text>\n");
}

void add_rule(std::string& svg, double x1, double y1, double x2, double y2) {
  svg.append("<line x1=\"").append(number(x1)).append("\" y1=\"").append(number(y1)).append("\" x2=\"");
  svg.append(number(x2)).append("\" y2=\"").append(number(y2)).append("\" stroke=\"#ddd\"/>\n");
}

/// The least and the greatest finite value; [0, 1] when there is none.
template <typename Values>
Axis axis_of(const Chart& chart, Values values, int ticks) {
  double least = std::numeric_limits<double>::infinity();
  double most = -least;
  for (const Line& line : chart.lines) {
    for (const double value : values(line)) {
      if (!std::isfinite(value)) continue;
      least = std::min(least, value);
      most = std::max(most, value);
    }
  }
  return least <= most ? make_axis(least, most, ticks) : make_axis(0, 1, ticks);
}

/// Indices of the points that a picture of `columns` pixels can tell apart.
std::vector<size_t> visible(const Line& line, const Axis& x, double columns) {
  std::vector<size_t> kept;
  if (line.x.size() < 4 * static_cast<size_t>(columns)) {
    for (size_t i = 0; i < line.x.size(); ++i) kept.push_back(i);
    return kept;
  }
  const auto column = [&](size_t i) { return static_cast<int64_t>(x.place(line.x[i]) * columns); };
  for (size_t begin = 0; begin < line.x.size();) {
    size_t least = begin;
    size_t most = begin;
    size_t end = begin;
    for (; end < line.x.size() && column(end) == column(begin); ++end) {
      if (!(line.y[end] >= line.y[least])) least = end;  // a value that is not finite is kept: it makes a gap
      if (line.y[end] > line.y[most]) most = end;
    }
    kept.push_back(std::min(least, most));
    if (least != most) kept.push_back(std::max(least, most));
    begin = end;
  }
  return kept;
}

class ChartDrawing {
 public:
  ChartDrawing(std::string& svg, const Chart& chart, double width, double height)
      : svg_(svg),
        chart_(chart),
        width_(width - kLeft - kRight),
        height_(height - kTop - kBottom),
        x_(axis_of(
            chart, [](const Line& line) -> const auto& { return line.x; }, 6)),
        y_(axis_of(
            chart, [](const Line& line) -> const auto& { return line.y; }, 5)) {}

  void draw() {
    add_text(svg_, kLeft + width_ / 2, 20, R"(text-anchor="middle" font-weight="bold")", chart_.title);
    for (const double tick : y_.ticks) {
      add_rule(svg_, kLeft, down(tick), kLeft + width_, down(tick));
      add_text(svg_, kLeft - 6, down(tick) + 4, R"(text-anchor="end")", tick_label(tick));
    }
    for (const double tick : x_.ticks) {
      add_rule(svg_, across(tick), kTop, across(tick), kTop + height_);
      add_text(svg_, across(tick), kTop + height_ + 15, R"(text-anchor="middle")", tick_label(tick));
    }
    add_text(svg_, kLeft + width_ / 2, kTop + height_ + 32, R"(text-anchor="middle" fill="#666")", chart_.x_label);
    for (size_t i = 0; i < chart_.lines.size(); ++i) draw_line(chart_.lines[i], kColours[i % kColours.size()]);
    draw_legend();
  }

 private:
  double across(double value) const { return kLeft + x_.place(value) * width_; }
  double down(double value) const { return kTop + (1 - y_.place(value)) * height_; }

  void draw_line(const Line& line, std::string_view colour) {
    std::string path;
    bool has_pen_down = false;
    size_t in_piece = 0;
    for (const size_t i : visible(line, x_, width_)) {
      const bool is_shown = std::isfinite(line.x[i]) && std::isfinite(line.y[i]);
      if (is_shown) {
        path.append(has_pen_down ? " L" : " M").append(number(across(line.x[i]))).append(",");
        path.append(number(down(line.y[i])));
        ++in_piece;
      }
      if (!is_shown) in_piece = 0;
      has_pen_down = is_shown;
    }
    svg_.append("<path d=\"").append(path).append("\" fill=\"none\" stroke-width=\"1.5\" stroke-linecap=\"round\" ");
    svg_.append("stroke-linejoin=\"round\" stroke=\"").append(colour).append("\"/>\n");
    if (line.x.size() != 1 || in_piece != 1) return;
    // One point makes no line.
    svg_.append("<circle cx=\"").append(number(across(line.x[0]))).append("\" cy=\"").append(number(down(line.y[0])));
    svg_.append("\" r=\"2.5\" fill=\"").append(colour).append("\"/>\n");
  }

  void draw_legend() {
    if (chart_.lines.size() == 1 && chart_.lines[0].label.empty()) return;
    for (size_t i = 0; i < std::min(chart_.lines.size(), kLongestLegend); ++i) {
      const double y = kTop + 14 + static_cast<double>(i) * kLegendLine;
      const bool is_cut = i + 1 == kLongestLegend && chart_.lines.size() > kLongestLegend;
      std::string attributes = R"(text-anchor="end" fill=")";
      attributes.append(is_cut ? "#666" : kColours[i % kColours.size()]).append("\"");
      add_text(svg_, kLeft + width_ - 6, y, attributes, is_cut ? "…" : chart_.lines[i].label);
    }
  }

  std::string& svg_;
  const Chart& chart_;
  double width_;
  double height_;
  Axis x_;
  Axis y_;
};

}  // namespace

std::vector<double> smoothed(const std::vector<double>& values, double weight) {
  std::vector<double> result;
  double mean = 0;
  double bias = 1;
  for (const double value : values) {
    if (!std::isfinite(value)) {
      result.push_back(value);
      continue;
    }
    mean = weight * mean + (1 - weight) * value;
    bias *= weight;
    result.push_back(mean / (1 - bias));
  }
  return result;
}

std::string draw_svg(const std::vector<Chart>& charts, const SvgOptions& options) {
  const auto count = static_cast<int64_t>(charts.size());
  const int64_t columns = std::clamp<int64_t>(options.columns, 1, std::max<int64_t>(1, count));
  const int64_t rows = std::max<int64_t>(1, (count + columns - 1) / columns);
  const std::string width = std::to_string(columns * options.width);
  const std::string height = std::to_string(rows * options.height);
  std::string svg = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"";
  svg.append(width).append("\" height=\"").append(height).append("\" viewBox=\"0 0 ").append(width).append(" ");
  svg.append(height).append("\" font-family=\"sans-serif\" font-size=\"11\">\n");
  svg.append("<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n");
  for (int64_t i = 0; i < count; ++i) {
    svg.append("<g transform=\"translate(").append(std::to_string(i % columns * options.width)).append(",");
    svg.append(std::to_string(i / columns * options.height)).append(")\">\n");
    ChartDrawing(svg, charts[static_cast<size_t>(i)], static_cast<double>(options.width),
                 static_cast<double>(options.height))
        .draw();
    svg += "</g>\n";
  }
  return svg.append("</svg>\n");
}

}  // namespace ddp::curves

#include "timeline/svg.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <set>
#include <string_view>

#include "base/utf8.h"
#include "timeline/cell_text.h"

namespace ddp::timelines {
namespace {

constexpr double kWidth = 960;
constexpr double kLeft = 130;
constexpr double kRight = 16;
constexpr double kTop = 64;
constexpr double kBar = 18;
constexpr double kGap = 3;
constexpr double kRankGap = 14;
constexpr double kLetter = 6.2;             // the width of a letter in the labels of bars
constexpr std::size_t kMaxDrawnRanks = 64;  // a picture with more ranks is not readable
constexpr std::size_t kMaxBars = 4000;

struct Colour {
  Activity activity;
  std::string_view name;
  std::string_view code;
};
// The colours of Okabe and Ito, which colour-blind readers can distinguish.
constexpr std::array kColours = {Colour{Activity::kData, "data", "#999999"},
                                 Colour{Activity::kForward, "forward", "#56B4E9"},
                                 Colour{Activity::kBackward, "backward", "#0072B2"},
                                 Colour{Activity::kWait, "wait", "#D55E00"},
                                 Colour{Activity::kOptimizer, "optimizer", "#009E73"},
                                 Colour{Activity::kCheckpoint, "checkpoint", "#CC79A7"},
                                 Colour{Activity::kEvaluation, "evaluation", "#F0E442"},
                                 Colour{Activity::kUser, "own range", "#B39DDB"},
                                 Colour{Activity::kBucket, "gradient bucket", "#E69F00"}};

std::string number(double value) {
  std::array<char, 48> text{};
  std::snprintf(text.data(), text.size(), "%.2f", value);
  return text.data();
}

std::string escaped(std::string_view text) {
  std::string safe;
  for (const char byte : detail::shown_text(text)) {
    if (byte == '&') {
      safe += "&amp;";
    } else if (byte == '<') {
      safe += "&lt;";
    } else if (byte == '>') {
      safe += "&gt;";
    } else {
      safe += byte;
    }
  }
  return safe;
}

class Picture {
 public:
  Picture(const Trace& trace, const std::map<int, RankLine>& lines, const StepSummary& step)
      : trace_(trace), lines_(lines), step_(step) {}

  std::string draw() {
    for (const auto& [rank, line] : lines_) {
      if (ranks_drawn_++ == kMaxDrawnRanks) break;
      draw_rank(rank, line);
    }
    draw_axis();
    const double height = y_ + 34;
    std::string title = step_.number < 0 ? "timeline" : "step " + std::to_string(step_.number);
    title += ", " + time_text(static_cast<double>(step_.duration()));
    if (lines_.size() > kMaxDrawnRanks) title += ", the first " + std::to_string(kMaxDrawnRanks) + " ranks";
    std::string svg = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + number(kWidth) + "\" height=\"" +
                      number(height) + "\" viewBox=\"0 0 " + number(kWidth) + " " + number(height) +
                      "\" font-family=\"sans-serif\" font-size=\"11\">\n" + std::string(kStyle) +
                      "<rect class=\"page\" width=\"100%\" height=\"100%\"/>\n";
    svg += "<text x=\"" + number(kLeft) + "\" y=\"18\" font-size=\"13\" font-weight=\"bold\">" + escaped(title) +
           "</text>\n";
    return svg + legend() + body_ + "</svg>\n";
  }

 private:
  static constexpr std::string_view kStyle =
      "<style>.page{fill:#fff}text{fill:#222}.grid{stroke:#ccc}.path{fill:none;stroke:#d00;stroke-width:2}.in{fill:#"
      "fff}"
      ".dark{fill:#222}@media (prefers-color-scheme:dark){.page{fill:#181a1f}text{fill:#ddd}.grid{stroke:#444}"
      ".path{stroke:#ff6b6b}.in{fill:#fff}.dark{fill:#222}}</style>\n";

  double x_of(std::int64_t time) const {
    const double share =
        static_cast<double>(time - step_.begin) / static_cast<double>(std::max<std::int64_t>(step_.duration(), 1));
    return kLeft + std::clamp(share, 0.0, 1.0) * (kWidth - kLeft - kRight);
  }

  void bar(double y, std::int64_t begin, std::int64_t end, const Colour& colour, std::string_view name) {
    const double x = x_of(begin);
    const double width = x_of(end) - x;
    if (width < 0.05 || bars_++ >= kMaxBars) return;
    body_ += "<rect x=\"" + number(x) + "\" y=\"" + number(y) + "\" width=\"" + number(std::max(width, 0.4)) +
             "\" height=\"" + number(kBar) + "\" fill=\"" + std::string(colour.code) + "\"><title>" + escaped(name) +
             ", " + time_text(static_cast<double>(end - begin)) + "</title></rect>\n";
    if (width < kLetter * static_cast<double>(name.size()) + 6 || name.size() > 60) return;
    const bool is_light = colour.activity == Activity::kEvaluation || colour.activity == Activity::kBucket ||
                          colour.activity == Activity::kForward || colour.activity == Activity::kUser;
    body_ += "<text class=\"" + std::string(is_light ? "dark" : "in") + "\" x=\"" + number(x + 4) + "\" y=\"" +
             number(y + 13) + "\">" + escaped(name) + "</text>\n";
  }

  void label(double y, const std::string& text) {
    body_ += "<text x=\"" + number(kLeft - 8) + "\" y=\"" + number(y + 13) + "\" text-anchor=\"end\">" + escaped(text) +
             "</text>\n";
  }

  void draw_rank(int rank, const RankLine& line) {
    label(y_, "rank " + std::to_string(rank));
    for (const Segment& segment : within(line.segments, step_.begin, step_.end)) draw(y_, segment);
    for (const PathPart& part : step_.path) {
      if (part.rank != rank) continue;
      const double x = x_of(part.begin);
      body_ += "<rect class=\"path\" x=\"" + number(x) + "\" y=\"" + number(y_ - 1) + "\" width=\"" +
               number(std::max(x_of(part.end) - x, 0.5)) + "\" height=\"" + number(kBar + 2) + "\"/>\n";
    }
    y_ += kBar + kGap;
    draw_buckets(line);
    y_ += kRankGap;
  }

  void draw(double y, const Segment& segment) {
    const auto* colour = std::find_if(kColours.begin(), kColours.end(),
                                      [&](const Colour& each) { return each.activity == segment.activity; });
    if (colour == kColours.end()) return;
    used_.insert(segment.activity);
    bar(y, segment.begin, segment.end, *colour,
        segment.name < trace_.names.size() ? trace_.names[segment.name] : colour->name);
  }

  // Overlapping buckets are drawn below each other.
  void draw_buckets(const RankLine& line) {
    std::vector<std::int64_t> ends;
    for (const Slice& bucket : line.buckets) {
      if (bucket.end <= step_.begin || bucket.begin >= step_.end) continue;
      auto row = std::find_if(ends.begin(), ends.end(), [&](std::int64_t end) { return end <= bucket.begin; });
      if (row == ends.end()) row = ends.insert(ends.end(), 0);
      *row = bucket.end;
      const auto index = static_cast<double>(row - ends.begin());
      used_.insert(Activity::kBucket);
      bar(y_ + index * (kBar + kGap), bucket.begin, bucket.end, kColours.back(), trace_.names[bucket.name]);
    }
    if (!ends.empty()) label(y_, "buckets");
    y_ += static_cast<double>(ends.size()) * (kBar + kGap);
  }

  void draw_axis() {
    const auto length = static_cast<double>(std::max<std::int64_t>(step_.duration(), 1));
    const double raw = length / 8;
    const double power = std::pow(10, std::floor(std::log10(raw)));
    const double tick = power * (raw / power > 5 ? 10 : raw / power > 2 ? 5 : raw / power > 1 ? 2 : 1);
    std::string grid;
    for (double at = 0; at <= length; at += tick) {
      const std::int64_t begin = step_.begin + static_cast<std::int64_t>(at);
      const std::string x = number(x_of(begin));
      grid += "<line class=\"grid\" x1=\"" + x + "\" x2=\"" + x + "\" y1=\"" + number(kTop - 8) + "\" y2=\"" +
              number(y_) + "\"/>\n";
      const std::string time = time_text(at);
      const double half = kLetter * static_cast<double>(time.size()) / 2;
      const double middle = std::min(x_of(begin), kWidth - half);  // the last label may reach the edge
      grid += "<text x=\"" + number(middle) + "\" y=\"" + number(y_ + 14) + "\" text-anchor=\"middle\">" + time +
              "</text>\n";
    }
    body_ = grid + body_;
  }

  std::string legend() const {
    std::string text;
    double x = kLeft;
    for (const Colour& colour : kColours) {
      if (!used_.contains(colour.activity)) continue;
      text += "<rect x=\"" + number(x) + "\" y=\"30\" width=\"10\" height=\"10\" fill=\"" + std::string(colour.code) +
              "\"/>";
      text += "<text x=\"" + number(x + 14) + "\" y=\"39\">" + std::string(colour.name) + "</text>\n";
      x += 26 + kLetter * static_cast<double>(colour.name.size());
    }
    text += "<rect class=\"path\" x=\"" + number(x) + "\" y=\"30\" width=\"10\" height=\"10\"/>";
    return text + "<text x=\"" + number(x + 14) + "\" y=\"39\">critical path</text>\n";
  }

  const Trace& trace_;
  const std::map<int, RankLine>& lines_;
  const StepSummary& step_;
  double y_ = kTop;
  std::string body_;
  std::set<Activity> used_;
  std::size_t ranks_drawn_ = 0;
  std::size_t bars_ = 0;
};

}  // namespace

std::string draw_svg(const Trace& trace, const std::map<int, RankLine>& lines, const Analysis& analysis) {
  const StepSummary empty{};
  const StepSummary& step = analysis.steps.empty() ? empty : analysis.steps[analysis.representative];
  return Picture(trace, lines, step).draw();
}

}  // namespace ddp::timelines

// What a picture of charts looks like, seen from a canvas that remembers what was drawn on it.
#include "monitor/curves/layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "monitor/curves/legend.h"
#include "monitor/curves/stroke_font.h"

namespace ddp::curves {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

struct DrawnText {
  std::string text;
  Spot place;
  TextStyle style;
};

struct DrawnLines {
  std::vector<Polyline> pieces;
  LineStyle style;
};

class Recording : public Canvas {
 public:
  void rule(Spot from, Spot to, Colour) override { rules.push_back({from, to}); }
  void lines(const std::vector<Polyline>& pieces, const LineStyle& style) override { all.push_back({pieces, style}); }
  void dot(Spot centre, double, Colour) override { dots.push_back(centre); }
  void text(Spot place, const TextStyle& style, const std::string& text) override {
    texts.push_back({text, place, style});
  }

  /// The texts' left ends, right ends.
  static std::pair<double, double> extent(const DrawnText& text) {
    const double width = text_width(text.text, kFontSize);
    const double part = text.style.anchor == Anchor::kStart ? 0 : text.style.anchor == Anchor::kMiddle ? 0.5 : 1;
    return {text.place.x - part * width, text.place.x + (1 - part) * width};
  }
  const DrawnText* find(const std::string& text) const {
    const auto found = std::find_if(texts.begin(), texts.end(), [&](const auto& drawn) { return drawn.text == text; });
    return found == texts.end() ? nullptr : &*found;
  }
  /// The lower right corner of the grid.
  Spot plot_end() const {
    Spot end;
    for (const auto& [from, to] : rules) end = {std::max(end.x, to.x), std::max(end.y, to.y)};
    return end;
  }

  std::vector<std::pair<Spot, Spot>> rules;
  std::vector<DrawnLines> all;  // curves, then the legend's pieces of line
  std::vector<Spot> dots;
  std::vector<DrawnText> texts;
};

std::unique_ptr<Recording> draw(const std::vector<Chart>& charts, const ChartOptions& options = {.columns = 1}) {
  auto canvas = std::make_unique<Recording>();
  draw_charts(charts, options, *canvas);
  return canvas;
}

Line line(const std::string& label, std::vector<double> y) {
  Line made{.label = label, .y = std::move(y)};
  for (size_t i = 0; i < made.y.size(); ++i) made.x.push_back(static_cast<double>(i));
  return made;
}

TEST(Layout, legends_stand_below_the_curves_and_not_on_them) {
  const auto canvas = draw({{.title = "loss", .lines = {line("first", {0, 10}), line("second", {10, 0})}}});
  const Spot end = canvas->plot_end();
  for (const char* label : {"first", "second"}) {
    ASSERT_NE(canvas->find(label), nullptr);
    EXPECT_GT(canvas->find(label)->place.y - kFontSize, end.y);
  }
  for (const Spot spot : canvas->all.at(0).pieces.at(0)) EXPECT_LT(spot.y, end.y);
}

TEST(Layout, a_single_run_needs_no_legend) {
  const auto canvas = draw({{.title = "loss", .x_label = "step", .lines = {line("", {0, 10})}}});
  EXPECT_THAT(canvas->all, SizeIs(1));
  EXPECT_EQ(canvas->texts.back().text, "step");
}

TEST(Layout, curves_keep_a_distance_from_their_frame_and_texts_from_the_edge) {
  std::vector<Line> lines;
  for (int i = 0; i < 40; ++i) {
    lines.push_back(line("a run with quite a long name, number " + std::to_string(i), {-1.2345e-7, 1e-7 * i, 5e-6}));
  }
  const ChartOptions options{.columns = 1, .width = 300, .height = 250};
  const auto canvas = draw({{.title = std::string(200, 'W'), .x_label = "step", .lines = lines}}, options);
  const Spot end = canvas->plot_end();
  const Spot begin = canvas->rules.at(0).first;
  for (const Polyline& piece : canvas->all.at(0).pieces) {
    for (const Spot spot : piece) {
      EXPECT_GT(spot.x, begin.x + 2);
      EXPECT_LT(spot.x, end.x - 2);
      EXPECT_LT(spot.y, end.y - 2);
    }
  }
  for (const DrawnText& text : canvas->texts) {
    const auto [left, right] = Recording::extent(text);
    EXPECT_GE(left, 4) << text.text;
    EXPECT_LE(right, 296) << text.text;
    EXPECT_GE(text.place.y, kFontSize) << text.text;
    EXPECT_LE(text.place.y, 246) << text.text;
  }
  EXPECT_THAT(canvas->texts.back().text, ::testing::MatchesRegex("and [0-9]+ more")) << "the legend must not take all";
}

TEST(Layout, labels_of_an_axis_do_not_overlap) {
  Line steps = line("", {1, 2});
  steps.x = {123456789, 123456999};
  const auto canvas = draw({{.lines = {steps}}}, {.columns = 1, .width = 300, .height = 200});
  double last = 0;
  size_t count = 0;
  for (const DrawnText& text : canvas->texts) {
    if (text.style.anchor != Anchor::kMiddle || text.text.find("123") != 0) continue;
    EXPECT_GT(Recording::extent(text).first, last) << text.text;
    last = Recording::extent(text).second;
    ++count;
  }
  EXPECT_GE(count, 2U);
}

TEST(Layout, a_run_has_the_same_line_in_every_chart_and_no_two_runs_have_the_same) {
  std::vector<Line> many;
  for (int i = 0; i < 20; ++i) many.push_back(line("run " + std::to_string(i), {0, 1}));
  const std::vector<Chart> charts = {{.title = "one", .lines = {many[5]}}, {.title = "all", .lines = many}};
  const LineStyles styles(charts);
  const auto canvas = draw(charts);
  EXPECT_EQ(canvas->all.at(0).style.colour, styles.of("run 5").colour);
  std::map<std::pair<uint32_t, std::vector<double>>, std::string> seen;
  for (const Line& run : many) {
    const LineStyle& style = styles.of(run.label);
    const uint32_t colour = style.colour.red << 16U | style.colour.green << 8U | style.colour.blue;
    EXPECT_TRUE(seen.emplace(std::pair(colour, style.dashes), run.label).second) << run.label;
  }
}

TEST(Layout, lines_have_gaps_where_values_are_not_finite) {
  const auto canvas = draw({{.lines = {line("", {0, 10, kNaN, 10, 0, INFINITY})}}});
  ASSERT_THAT(canvas->all.at(0).pieces, SizeIs(2));
  EXPECT_THAT(canvas->all[0].pieces, ElementsAre(SizeIs(2), SizeIs(2)));
  EXPECT_THAT(canvas->dots, IsEmpty());
  EXPECT_THAT(draw({{.lines = {line("", {kNaN, INFINITY})}}})->all, IsEmpty());
}

TEST(Layout, a_point_alone_is_a_dot) {
  const auto between = draw({{.lines = {line("", {0, 1, kNaN, 5, kNaN, 1})}}});
  EXPECT_THAT(between->all.at(0).pieces, SizeIs(1));
  EXPECT_THAT(between->dots, SizeIs(2)) << "one between gaps, one at the end";
  const auto alone = draw({{.title = "hparam/accuracy", .lines = {line("", {0.875})}}});
  EXPECT_THAT(alone->dots, SizeIs(1));
  EXPECT_NE(alone->find("0.875"), nullptr) << "its value beside it";
  EXPECT_NE(alone->find("0"), nullptr) << "its step on the axis";
  for (const DrawnText& text : alone->texts) EXPECT_THAT(text.text, ::testing::Not(HasSubstr("e-1")));
}

TEST(Layout, a_million_points_are_thinned_and_keep_their_extremes) {
  Line long_line;
  for (int i = 0; i < 1'000'000; ++i) {
    long_line.x.push_back(i);
    long_line.y.push_back(i == 700'000 ? 100 : std::sin(i));
  }
  const auto canvas = draw({{.lines = {long_line}}});
  const Polyline& points = canvas->all.at(0).pieces.at(0);
  EXPECT_LT(points.size(), 1000U);
  const auto top = std::min_element(points.begin(), points.end(), [](Spot a, Spot b) { return a.y < b.y; });
  EXPECT_LT(top->y, points[0].y - 100);
}

TEST(Layout, charts_beside_each_other_have_axes_in_line) {
  const Chart small{.title = "a", .x_label = "step", .lines = {line("r", {0, 1}), line("s", {0, 1})}};
  Chart wide = small;
  wide.lines.push_back(line(std::string(60, 'x'), {1e-7, 1.23e-7}));
  const auto canvas = draw({small, wide}, {.columns = 2});
  std::vector<double> bottoms;
  for (const DrawnText& text : canvas->texts) {
    if (text.text == "step") bottoms.push_back(text.place.y);
  }
  ASSERT_THAT(bottoms, SizeIs(2));
  EXPECT_EQ(bottoms[0], bottoms[1]);
}

TEST(Legend, of_thousands_of_runs_says_how_many_it_leaves_out) {
  Chart chart;
  for (int i = 0; i < 5000; ++i) chart.lines.push_back(line("run " + std::to_string(i), {0, 1}));
  const Legend legend = make_legend(chart, 400, 3);
  EXPECT_EQ(legend.rows, 3U);
  EXPECT_EQ(legend.entries.back().text, "and " + std::to_string(5001 - legend.entries.size()) + " more");
}

TEST(Legend, shortens_a_text_in_the_middle) {
  EXPECT_EQ(shortened("short", 100), "short");
  const std::string cut = shortened("the beginning and the very end", 80);
  EXPECT_THAT(cut, ::testing::MatchesRegex("the.*….*end"));
  EXPECT_LE(text_width(cut, kFontSize), 80);
  EXPECT_EQ(shortened("größer als ein Zeichen", 1), "…");
  EXPECT_LE(text_width(shortened(std::string(10'000'000, 'x'), 200), kFontSize), 200) << "of hostile length";
}

}  // namespace
}  // namespace ddp::curves

// What a picture of charts looks like, seen from a canvas that remembers what was drawn on it.
#include "monitor/curves/layout.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>

#include "monitor/curves/legend.h"
#include "monitor/curves/text_width.h"
#include "tests/support/catch.h"
#include "tests/support/matchers.h"

namespace ddp::curves {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::IsEmpty;
using Catch::Matchers::Matches;
using Catch::Matchers::SizeIs;
using test::ElementsAre;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

struct DrawnText {
  std::string text;
  PixelPoint place;
  TextStyle style;
};

struct DrawnLines {
  std::vector<Polyline> pieces;
  LineStyle style;
};

class Recording : public Canvas {
 public:
  void rule(PixelPoint from, PixelPoint to, Colour) override { rules.push_back({from, to}); }
  void lines(const std::vector<Polyline>& pieces, const LineStyle& style) override { all.push_back({pieces, style}); }
  void dot(PixelPoint centre, double, Colour) override { dots.push_back(centre); }
  void text(PixelPoint place, const TextStyle& style, const std::string& text) override {
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
  PixelPoint plot_end() const {
    PixelPoint end;
    for (const auto& [from, to] : rules) end = {std::max(end.x, to.x), std::max(end.y, to.y)};
    return end;
  }

  std::vector<std::pair<PixelPoint, PixelPoint>> rules;
  std::vector<DrawnLines> all;  // curves, then the legend's pieces of line
  std::vector<PixelPoint> dots;
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

TEST_CASE("Layout: legends stand below the curves and not on them") {
  const auto canvas = draw({{.title = "loss", .lines = {line("first", {0, 10}), line("second", {10, 0})}}});
  const PixelPoint end = canvas->plot_end();
  for (const char* label : {"first", "second"}) {
    REQUIRE(canvas->find(label) != nullptr);
    CHECK(canvas->find(label)->place.y - kFontSize > end.y);
  }
  for (const PixelPoint spot : canvas->all.at(0).pieces.at(0)) CHECK(spot.y < end.y);
}

TEST_CASE("Layout: a single run needs no legend") {
  const auto canvas = draw({{.title = "loss", .x_label = "step", .lines = {line("", {0, 10})}}});
  CHECK_THAT(canvas->all, SizeIs(1));
  CHECK(canvas->texts.back().text == "step");
}

TEST_CASE("Layout: curves keep a distance from their frame and texts from the edge") {
  std::vector<Line> lines;
  for (int i = 0; i < 40; ++i) {
    lines.push_back(line("a run with quite a long name, number " + std::to_string(i), {-1.2345e-7, 1e-7 * i, 5e-6}));
  }
  const ChartOptions options{.columns = 1, .width = 300, .height = 250};
  const auto canvas = draw({{.title = std::string(200, 'W'), .x_label = "step", .lines = lines}}, options);
  const PixelPoint end = canvas->plot_end();
  const PixelPoint begin = canvas->rules.at(0).first;
  for (const Polyline& piece : canvas->all.at(0).pieces) {
    for (const PixelPoint spot : piece) {
      CHECK(spot.x > begin.x + 2);
      CHECK(spot.x < end.x - 2);
      CHECK(spot.y < end.y - 2);
    }
  }
  for (const DrawnText& text : canvas->texts) {
    const auto [left, right] = Recording::extent(text);
    INFO(text.text);
    CHECK(left >= 4);
    CHECK(right <= 296);
    CHECK(text.place.y >= kFontSize);
    CHECK(text.place.y <= 246);
  }
  INFO("the legend must not take all");
  CHECK_THAT(canvas->texts.back().text, Matches("and [0-9]+ more"));
}

TEST_CASE("Layout: labels of an axis do not overlap") {
  Line steps = line("", {1, 2});
  steps.x = {123456789, 123456999};
  const auto canvas = draw({{.lines = {steps}}}, {.columns = 1, .width = 300, .height = 200});
  double last = 0;
  size_t count = 0;
  for (const DrawnText& text : canvas->texts) {
    if (text.style.anchor != Anchor::kMiddle || text.text.find("123") != 0) continue;
    INFO(text.text);
    CHECK(Recording::extent(text).first > last);
    last = Recording::extent(text).second;
    ++count;
  }
  CHECK(count >= 2U);
}

TEST_CASE("Layout: a run has the same line in every chart and no two runs have the same") {
  std::vector<Line> many;
  for (int i = 0; i < 20; ++i) many.push_back(line("run " + std::to_string(i), {0, 1}));
  const std::vector<Chart> charts = {{.title = "one", .lines = {many[5]}}, {.title = "all", .lines = many}};
  const LineStyles styles(charts);
  const auto canvas = draw(charts);
  CHECK(canvas->all.at(0).style.colour == styles.of("run 5").colour);
  std::map<std::pair<uint32_t, std::vector<double>>, std::string> seen;
  for (const Line& run : many) {
    const LineStyle& style = styles.of(run.label);
    const uint32_t colour = style.colour.red << 16U | style.colour.green << 8U | style.colour.blue;
    INFO(run.label);
    CHECK(seen.emplace(std::pair(colour, style.dashes), run.label).second);
  }
}

TEST_CASE("Layout: lines have gaps where values are not finite") {
  const auto canvas = draw({{.lines = {line("", {0, 10, kNaN, 10, 0, INFINITY})}}});
  REQUIRE_THAT(canvas->all.at(0).pieces, SizeIs(2));
  CHECK_THAT(canvas->all[0].pieces, ElementsAre(SizeIs(2), SizeIs(2)));
  CHECK_THAT(canvas->dots, IsEmpty());
  CHECK_THAT(draw({{.lines = {line("", {kNaN, INFINITY})}}})->all, IsEmpty());
}

TEST_CASE("Layout: a point alone is a dot") {
  const auto between = draw({{.lines = {line("", {0, 1, kNaN, 5, kNaN, 1})}}});
  CHECK_THAT(between->all.at(0).pieces, SizeIs(1));
  UNSCOPED_INFO("one between gaps, one at the end");
  CHECK_THAT(between->dots, SizeIs(2));
  const auto alone = draw({{.title = "hparam/accuracy", .lines = {line("", {0.875})}}});
  CHECK_THAT(alone->dots, SizeIs(1));
  UNSCOPED_INFO("its value beside it");
  CHECK(alone->find("0.875") != nullptr);
  UNSCOPED_INFO("its step on the axis");
  CHECK(alone->find("0") != nullptr);
  for (const DrawnText& text : alone->texts) CHECK_THAT(text.text, !ContainsSubstring("e-1"));
}

TEST_CASE("Layout: a million points are thinned and keep their extremes") {
  Line long_line;
  for (int i = 0; i < 1'000'000; ++i) {
    long_line.x.push_back(i);
    long_line.y.push_back(i == 700'000 ? 100 : std::sin(i));
  }
  const auto canvas = draw({{.lines = {long_line}}});
  const Polyline& points = canvas->all.at(0).pieces.at(0);
  CHECK(points.size() < 1000U);
  const auto top = std::min_element(points.begin(), points.end(), [](PixelPoint a, PixelPoint b) { return a.y < b.y; });
  CHECK(top->y < points[0].y - 100);
}

TEST_CASE("Layout: curves run from left to right also where labels are wider than the chart") {
  const double odd = -1.2345678901234567e-100;
  const Chart chart{.title = "a", .lines = {line("r", {odd, odd * (1 + 1e-8), odd})}};
  for (const int width : {40, 60, 150}) {
    const auto canvas = draw({chart}, {.columns = 1, .width = width, .height = 80});
    const Polyline& points = canvas->all.at(0).pieces.at(0);
    REQUIRE(points.size() == 3);
    CHECK(points[0].x < points[1].x);
    CHECK(points[1].x < points[2].x);
    CHECK(points[2].x < static_cast<double>(width));
  }
}

TEST_CASE("Layout: charts beside each other have axes in line") {
  const Chart small{.title = "a", .x_label = "step", .lines = {line("r", {0, 1}), line("s", {0, 1})}};
  Chart wide = small;
  wide.lines.push_back(line(std::string(60, 'x'), {1e-7, 1.23e-7}));
  const auto canvas = draw({small, wide}, {.columns = 2});
  std::vector<double> bottoms;
  for (const DrawnText& text : canvas->texts) {
    if (text.text == "step") bottoms.push_back(text.place.y);
  }
  REQUIRE_THAT(bottoms, SizeIs(2));
  CHECK(bottoms[0] == bottoms[1]);
}

TEST_CASE("Legend: of thousands of runs says how many it leaves out") {
  Chart chart;
  for (int i = 0; i < 5000; ++i) chart.lines.push_back(line("run " + std::to_string(i), {0, 1}));
  const Legend legend = make_legend(chart, 400, 3);
  CHECK(legend.rows == 3U);
  CHECK(legend.entries.back().text == "and " + std::to_string(5001 - legend.entries.size()) + " more");
}

TEST_CASE("Legend: shortens a text in the middle") {
  CHECK(shortened("short", 100) == "short");
  const std::string cut = shortened("the beginning and the very end", 80);
  CHECK_THAT(cut, Matches("the.*….*end"));
  CHECK(text_width(cut, kFontSize) <= 80);
  CHECK(shortened("größer als ein Zeichen", 1) == "…");
  INFO("of hostile length");
  CHECK(text_width(shortened(std::string(10'000'000, 'x'), 200), kFontSize) <= 200);
}

}  // namespace
}  // namespace ddp::curves

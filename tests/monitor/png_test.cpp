// The charts as pixels: lines with smooth edges, letters, and a file that libpng reads.
#include "monitor/curves/png.h"

#include <png.h>

#include <algorithm>
#include <stdexcept>

#include "monitor/curves/raster.h"
#include "monitor/curves/stroke_font.h"
#include "tests/support/catch.h"
#include "tests/support/matchers.h"

namespace ddp::curves {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;
using Catch::Matchers::SizeIs;
using Catch::Matchers::WithinAbs;
using test::ElementsAre;

constexpr Colour kBlack{0, 0, 0};

int grey(const Bitmap& bitmap, int64_t x, int64_t y) {
  return bitmap.pixels.at(static_cast<size_t>((y * bitmap.width + x) * 3));
}

TEST_CASE("Raster: a line covers the pixels that it should") {
  Raster raster(20, 10);
  raster.stroke({{{2, 5}, {15, 5}}}, 2, kBlack);
  const Bitmap& bitmap = raster.bitmap();
  CHECK(grey(bitmap, 8, 4) == 0);
  CHECK(grey(bitmap, 8, 5) == 0);
  CHECK(grey(bitmap, 8, 3) == 255);
  CHECK(grey(bitmap, 8, 6) == 255);
  CHECK(grey(bitmap, 18, 5) == 255);
}

TEST_CASE("Raster: edges are smooth and thin lines are faint") {
  Raster raster(20, 10);
  raster.stroke({{{-5, 5.5}, {25, 5.5}}}, 2, kBlack);
  CHECK(grey(raster.bitmap(), 8, 5) == 0);
  UNSCOPED_INFO("half covered");
  CHECK(grey(raster.bitmap(), 8, 4) >= 120);
  CHECK(grey(raster.bitmap(), 8, 4) <= 135);
  raster.stroke({{{0, 1.5}, {20, 1.5}}}, 0.5, kBlack);
  CHECK(grey(raster.bitmap(), 8, 1) >= 120);
  CHECK(grey(raster.bitmap(), 8, 1) <= 135);
}

TEST_CASE("Raster: a line that crosses itself is not darker there") {
  Raster raster(20, 20);
  raster.stroke({{{0, 10.5}, {20, 10.5}}, {{10.5, 0}, {10.5, 20}}}, 0.5, kBlack);
  CHECK(grey(raster.bitmap(), 10, 10) == grey(raster.bitmap(), 3, 10));
}

TEST_CASE("Raster: what is outside is cut off") {
  Raster raster(4, 4);
  raster.stroke({{{-1e9, -1e9}, {1e9, 1e9}}}, 1, kBlack);
  CHECK(grey(raster.bitmap(), 2, 2) == 0);
  raster.stroke({{{100, 100}}}, 5, kBlack);
  raster.stroke({}, 5, kBlack);
  raster.fill(-10, -10, 2, 1, kBlack);
  CHECK(grey(raster.bitmap(), 1, 0) == 0);
  CHECK(grey(raster.bitmap(), 3, 0) == 255);
}

TEST_CASE("Raster: dashes go round corners") {
  const auto dashes = dashed({{{0, 0}, {5, 0}, {5, 5}}}, {3, 1});
  REQUIRE_THAT(dashes, SizeIs(3));
  CHECK_THAT(dashes[0], SizeIs(2));
  UNSCOPED_INFO("from (4, 0) over the corner to (5, 2)");
  CHECK_THAT(dashes[1], SizeIs(3));
  CHECK_THAT(dashes[1].back().y, WithinAbs(2, 1e-9));
  CHECK_THAT(dashes[2].front().y, WithinAbs(3, 1e-9));
  CHECK_THAT(dashes[2].back().y, WithinAbs(5, 1e-9));
}

TEST_CASE("StrokeFont: has every ASCII character and shapes that differ") {
  std::vector<std::vector<double>> shapes;
  for (char code = '!'; code <= '~'; ++code) {
    std::vector<double> shape;
    for (const Polyline& piece : text_strokes(std::string(1, code), 20)) {
      for (const Spot spot : piece) {
        shape.push_back(spot.x);
        shape.push_back(spot.y);
        INFO(code);
        CHECK(spot.y >= -17);
        CHECK(spot.y <= 5);
        CHECK(spot.x >= -1);
        CHECK(spot.x <= text_width(std::string(1, code), 20) + 1);
      }
    }
    INFO(code);
    CHECK_FALSE(shape.empty());
    CHECK(std::count(shapes.begin(), shapes.end(), shape) == 0);
    shapes.push_back(shape);
  }
}

TEST_CASE("StrokeFont: puts accents over letters and a box for what it does not have") {
  CHECK(text_width("ö", 11) == text_width("o", 11));
  UNSCOPED_INFO("combining");
  CHECK(text_width("o\u0308", 11) == text_width("o", 11));
  CHECK(text_strokes("ö", 11).size() == text_strokes("o", 11).size() + 2);
  CHECK(text_strokes("o\u0308", 11).size() == text_strokes("ö", 11).size());
  CHECK_THAT(text_strokes("学", 11), ElementsAre(SizeIs(5)));
  UNSCOPED_INFO("as wide as on a terminal");
  CHECK(text_width("学", 11) == 2 * text_width("\uE000", 11));
  CHECK_THAT(text_strokes("\xFF", 11), ElementsAre(SizeIs(5)));
}

Bitmap decoded(const std::string& png) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  if (png_image_begin_read_from_memory(&image, png.data(), png.size()) == 0) throw std::runtime_error(image.message);
  image.format = PNG_FORMAT_RGB;
  Bitmap bitmap{.height = image.height, .width = image.width, .channels = 3};
  bitmap.pixels.resize(PNG_IMAGE_SIZE(image));
  if (png_image_finish_read(&image, nullptr, bitmap.pixels.data(), 0, nullptr) == 0) {
    throw std::runtime_error(image.message);
  }
  return bitmap;
}

const std::vector<Chart> kCharts = {
    {.title = "loss", .x_label = "step", .lines = {{.label = "run", .x = {0, 1, 2}, .y = {1, 1, 1}}}}};

TEST_CASE("Png: shows the curve in its colour on white") {
  const Bitmap bitmap = decoded(draw_png(kCharts, {.columns = 1, .width = 300, .height = 200}, 2));
  CHECK(bitmap.width == 600);
  CHECK(bitmap.height == 400);
  CHECK(grey(bitmap, 0, 0) == 255);
  const Colour blue{0x00, 0x72, 0xB2};
  int64_t pixels = 0;
  for (size_t i = 0; i + 2 < bitmap.pixels.size(); i += 3) {
    if (Colour{bitmap.pixels[i], bitmap.pixels[i + 1], bitmap.pixels[i + 2]} == blue) ++pixels;
  }
  INFO("a line as wide as the chart, and a piece in the legend");
  CHECK(pixels >= 2 * 400);
  CHECK(pixels <= 4 * 600);
}

TEST_CASE("Png: too large a picture is refused with what to do") {
  CHECK_THROWS_MATCHES(draw_png(kCharts, {.columns = 1, .width = 10'000, .height = 10'000}, 10), std::invalid_argument,
                       MessageMatches(ContainsSubstring("100000x100000 pixels") && ContainsSubstring("--scale")));
}

}  // namespace
}  // namespace ddp::curves

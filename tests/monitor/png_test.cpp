// The charts as pixels: lines with smooth edges, letters, and a file that libpng reads.
#include "monitor/curves/png.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <png.h>

#include <algorithm>
#include <stdexcept>

#include "monitor/curves/raster.h"
#include "monitor/curves/stroke_font.h"

namespace ddp::curves {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::Le;
using ::testing::SizeIs;
using ::testing::ThrowsMessage;

constexpr Colour kBlack{0, 0, 0};

int grey(const Bitmap& bitmap, int64_t x, int64_t y) {
  return bitmap.pixels.at(static_cast<size_t>((y * bitmap.width + x) * 3));
}

TEST(Raster, a_line_covers_the_pixels_that_it_should) {
  Raster raster(20, 10);
  raster.stroke({{{2, 5}, {15, 5}}}, 2, kBlack);
  const Bitmap& bitmap = raster.bitmap();
  EXPECT_EQ(grey(bitmap, 8, 4), 0);
  EXPECT_EQ(grey(bitmap, 8, 5), 0);
  EXPECT_EQ(grey(bitmap, 8, 3), 255);
  EXPECT_EQ(grey(bitmap, 8, 6), 255);
  EXPECT_EQ(grey(bitmap, 18, 5), 255);
}

TEST(Raster, edges_are_smooth_and_thin_lines_are_faint) {
  Raster raster(20, 10);
  raster.stroke({{{-5, 5.5}, {25, 5.5}}}, 2, kBlack);
  EXPECT_EQ(grey(raster.bitmap(), 8, 5), 0);
  EXPECT_THAT(grey(raster.bitmap(), 8, 4), AllOf(Ge(120), Le(135))) << "half covered";
  raster.stroke({{{0, 1.5}, {20, 1.5}}}, 0.5, kBlack);
  EXPECT_THAT(grey(raster.bitmap(), 8, 1), AllOf(Ge(120), Le(135)));
}

TEST(Raster, a_line_that_crosses_itself_is_not_darker_there) {
  Raster raster(20, 20);
  raster.stroke({{{0, 10.5}, {20, 10.5}}, {{10.5, 0}, {10.5, 20}}}, 0.5, kBlack);
  EXPECT_EQ(grey(raster.bitmap(), 10, 10), grey(raster.bitmap(), 3, 10));
}

TEST(Raster, what_is_outside_is_cut_off) {
  Raster raster(4, 4);
  raster.stroke({{{-1e9, -1e9}, {1e9, 1e9}}}, 1, kBlack);
  EXPECT_EQ(grey(raster.bitmap(), 2, 2), 0);
  raster.stroke({{{100, 100}}}, 5, kBlack);
  raster.stroke({}, 5, kBlack);
  raster.fill(-10, -10, 2, 1, kBlack);
  EXPECT_EQ(grey(raster.bitmap(), 1, 0), 0);
  EXPECT_EQ(grey(raster.bitmap(), 3, 0), 255);
}

TEST(Raster, dashes_go_round_corners) {
  const auto dashes = dashed({{{0, 0}, {5, 0}, {5, 5}}}, {3, 1});
  ASSERT_THAT(dashes, SizeIs(3));
  EXPECT_THAT(dashes[0], SizeIs(2));
  EXPECT_THAT(dashes[1], SizeIs(3)) << "from (4, 0) over the corner to (5, 2)";
  EXPECT_NEAR(dashes[1].back().y, 2, 1e-9);
  EXPECT_NEAR(dashes[2].front().y, 3, 1e-9);
  EXPECT_NEAR(dashes[2].back().y, 5, 1e-9);
}

TEST(StrokeFont, has_every_ascii_character_and_shapes_that_differ) {
  std::vector<std::vector<double>> shapes;
  for (char code = '!'; code <= '~'; ++code) {
    std::vector<double> shape;
    for (const Polyline& piece : text_strokes(std::string(1, code), 20)) {
      for (const Spot spot : piece) {
        shape.push_back(spot.x);
        shape.push_back(spot.y);
        EXPECT_THAT(spot.y, AllOf(Ge(-17), Le(5))) << code;
        EXPECT_THAT(spot.x, AllOf(Ge(-1), Le(text_width(std::string(1, code), 20) + 1))) << code;
      }
    }
    EXPECT_FALSE(shape.empty()) << code;
    EXPECT_EQ(std::count(shapes.begin(), shapes.end(), shape), 0) << code;
    shapes.push_back(shape);
  }
}

TEST(StrokeFont, puts_accents_over_letters_and_a_box_for_what_it_does_not_have) {
  EXPECT_EQ(text_width("ö", 11), text_width("o", 11));
  EXPECT_EQ(text_width("o\u0308", 11), text_width("o", 11)) << "combining";
  EXPECT_EQ(text_strokes("ö", 11).size(), text_strokes("o", 11).size() + 2);
  EXPECT_EQ(text_strokes("o\u0308", 11).size(), text_strokes("ö", 11).size());
  EXPECT_THAT(text_strokes("学", 11), ElementsAre(SizeIs(5)));
  EXPECT_EQ(text_width("学", 11), 2 * text_width("\uE000", 11)) << "as wide as on a terminal";
  EXPECT_THAT(text_strokes("\xFF", 11), ElementsAre(SizeIs(5)));
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

TEST(Png, shows_the_curve_in_its_colour_on_white) {
  const Bitmap bitmap = decoded(draw_png(kCharts, {.columns = 1, .width = 300, .height = 200}, 2));
  EXPECT_EQ(bitmap.width, 600);
  EXPECT_EQ(bitmap.height, 400);
  EXPECT_EQ(grey(bitmap, 0, 0), 255);
  const Colour blue{0x00, 0x72, 0xB2};
  int64_t pixels = 0;
  for (size_t i = 0; i + 2 < bitmap.pixels.size(); i += 3) {
    if (Colour{bitmap.pixels[i], bitmap.pixels[i + 1], bitmap.pixels[i + 2]} == blue) ++pixels;
  }
  EXPECT_THAT(pixels, AllOf(Ge(2 * 400), Le(4 * 600))) << "a line as wide as the chart, and a piece in the legend";
}

TEST(Png, too_large_a_picture_is_refused_with_what_to_do) {
  EXPECT_THAT([] { draw_png(kCharts, {.columns = 1, .width = 10'000, .height = 10'000}, 10); },
              ThrowsMessage<std::invalid_argument>(AllOf(HasSubstr("100000x100000 pixels"), HasSubstr("--scale"))));
}

}  // namespace
}  // namespace ddp::curves

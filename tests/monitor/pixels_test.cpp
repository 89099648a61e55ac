// The charts as pixels, and a file that libpng reads.
#include "monitor/curves/pixels.h"

#include <png.h>

#include <algorithm>
#include <stdexcept>

#include "monitor/curves/cairo.h"
#include "tests/support/catch.h"
#include "tests/support/matchers.h"

namespace ddp::curves {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;
using Catch::Matchers::SizeIs;
using Catch::Matchers::WithinAbs;
using test::ElementsAre;

int grey(const Bitmap& bitmap, int64_t x, int64_t y) {
  return bitmap.pixels.at(static_cast<size_t>((y * bitmap.width + x) * 3));
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

void skip_without_cairo() {
  try {
    load_cairo();
  } catch (const MissingLibrary& error) {
    SKIP(error.what());
  }
}

TEST_CASE("Png: shows the curve in its colour on white") {
  skip_without_cairo();
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

TEST_CASE("Png: a text that is not UTF-8 does not stop the drawing") {
  skip_without_cairo();
  auto charts = kCharts;
  const auto dark_pixels = [&] {
    const Bitmap bitmap = draw_bitmap(charts, {.columns = 1, .width = 300, .height = 200}, 1);
    return std::count_if(bitmap.pixels.begin(), bitmap.pixels.end(), [](uint8_t value) { return value < 128; });
  };
  charts[0].title = "";
  const auto without_title = dark_pixels();
  charts[0].title = "lo\xFFss";
  CHECK(dark_pixels() > without_title);
}

TEST_CASE("Png: too large a picture is refused with what to do") {
  CHECK_THROWS_MATCHES(draw_png(kCharts, {.columns = 1, .width = 10'000, .height = 10'000}, 10), std::invalid_argument,
                       MessageMatches(ContainsSubstring("100000x100000 pixels") && ContainsSubstring("--scale")));
}

}  // namespace
}  // namespace ddp::curves

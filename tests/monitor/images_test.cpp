#include <png.h>

#include <limits>
#include <stdexcept>

#include <ddprun/monitor/summary_values.h>

#include "tests/support/catch.h"
#include "tests/support/matchers.h"

namespace ddp {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;
using test::ElementsAre;

std::vector<uint8_t> decode(const std::string& file, png_uint_32 format, int64_t& height, int64_t& width) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  INFO(image.message);
  CHECK(png_image_begin_read_from_memory(&image, file.data(), file.size()) == 1);
  image.format = format;
  std::vector<uint8_t> pixels(PNG_IMAGE_SIZE(image));
  CHECK(png_image_finish_read(&image, nullptr, pixels.data(), 0, nullptr) == 1);
  height = image.height;
  width = image.width;
  return pixels;
}

TEST_CASE("Images: a grid puts eight in a row and fills up with black") {
  std::vector<uint8_t> pixels;
  for (int image = 1; image <= 9; ++image) pixels.insert(pixels.end(), 4, static_cast<uint8_t>(image));
  const Bitmap grid =
      image_grid(ImagesView<uint8_t>{.pixels = pixels, .count = 9, .channels = 1, .height = 2, .width = 2});
  CHECK(grid.height == 4);
  CHECK(grid.width == 16);
  CHECK(grid.channels == 1);
  for (int64_t y = 0; y < 4; ++y) {
    for (int64_t x = 0; x < 16; ++x) {
      const int64_t image = y / 2 * 8 + x / 2 + 1;
      INFO(y << ", " << x);
      REQUIRE(grid.pixels[static_cast<size_t>(y * 16 + x)] == (image <= 9 ? image : 0));
    }
  }
}

TEST_CASE("Images: planes become interleaved channels") {
  const std::vector<uint8_t> planes = {1, 2, 10, 20, 100, 200};
  const Bitmap bitmap = image_grid(ImagesView<uint8_t>{.pixels = planes, .height = 1, .width = 2});
  CHECK_THAT(bitmap.pixels, ElementsAre(1, 10, 100, 2, 20, 200));
}

TEST_CASE("Images: floats are scaled, clipped and truncated") {
  const std::vector<float> pixels = {0.0F, 0.5F, 1.0F, 7.0F, -1.0F, std::numeric_limits<float>::quiet_NaN()};
  const Bitmap bitmap = image_grid(ImagesView<float>{.pixels = pixels, .channels = 1, .height = 1, .width = 6});
  CHECK_THAT(bitmap.pixels, ElementsAre(0, 127, 255, 255, 0, 0));
}

TEST_CASE("Images: PNG is lossless for every number of channels") {
  const png_uint_32 formats[] = {PNG_FORMAT_GRAY, PNG_FORMAT_GA, PNG_FORMAT_RGB, PNG_FORMAT_RGBA};
  for (int64_t channels = 1; channels <= 4; ++channels) {
    Bitmap bitmap{.height = 13, .width = 7, .channels = channels};
    for (int64_t i = 0; i < 13 * 7 * channels; ++i) bitmap.pixels.push_back(static_cast<uint8_t>(i * 37 + i / 11));
    int64_t height = 0;
    int64_t width = 0;
    UNSCOPED_INFO(channels);
    CHECK(decode(encode_png(bitmap), formats[channels - 1], height, width) == bitmap.pixels);
    CHECK(height == 13);
    CHECK(width == 7);
  }
}

TEST_CASE("Images: a shape that is none is refused by its numbers") {
  const std::vector<uint8_t> pixels(12);
  const auto refused = [&](ImagesView<uint8_t> images, const char* message) {
    images.pixels = pixels;
    CHECK_THROWS_MATCHES(image_grid(images), std::invalid_argument, MessageMatches(ContainsSubstring(message)));
  };
  refused({.pixels = {}, .channels = 5, .height = 1, .width = 1}, "1x5x1x1");
  refused({.pixels = {}, .channels = 3, .height = 0, .width = 4}, "1x3x0x4");
  refused({.pixels = {}, .channels = 3, .height = 2, .width = 3}, "has 18 pixels, got 12");
  refused({.pixels = {}, .count = 0, .channels = 3, .height = 2, .width = 2}, "0x3x2x2");
  refused({.pixels = {}, .count = int64_t{1} << 60, .channels = 3, .height = 1 << 16, .width = 1 << 16}, "Invalid");
  CHECK_THROWS_AS(image_grid(ImagesView<uint8_t>{.pixels = pixels, .height = 2, .width = 2}, 0), std::invalid_argument);
}

}  // namespace
}  // namespace ddp

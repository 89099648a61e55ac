#include "monitor/images.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <png.h>

#include <limits>
#include <stdexcept>

namespace ddp {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

std::vector<uint8_t> decode(const std::string& file, png_uint_32 format, int64_t& height, int64_t& width) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  EXPECT_EQ(png_image_begin_read_from_memory(&image, file.data(), file.size()), 1) << image.message;
  image.format = format;
  std::vector<uint8_t> pixels(PNG_IMAGE_SIZE(image));
  EXPECT_EQ(png_image_finish_read(&image, nullptr, pixels.data(), 0, nullptr), 1) << image.message;
  height = image.height;
  width = image.width;
  return pixels;
}

TEST(Images, a_grid_puts_eight_in_a_row_and_fills_up_with_black) {
  std::vector<uint8_t> pixels;
  for (int image = 1; image <= 9; ++image) pixels.insert(pixels.end(), 4, static_cast<uint8_t>(image));
  const Bitmap grid =
      image_grid(ImagesView<uint8_t>{.pixels = pixels, .count = 9, .channels = 1, .height = 2, .width = 2});
  EXPECT_EQ(grid.height, 4);
  EXPECT_EQ(grid.width, 16);
  EXPECT_EQ(grid.channels, 1);
  for (int64_t y = 0; y < 4; ++y) {
    for (int64_t x = 0; x < 16; ++x) {
      const int64_t image = y / 2 * 8 + x / 2 + 1;
      ASSERT_EQ(grid.pixels[static_cast<size_t>(y * 16 + x)], image <= 9 ? image : 0) << y << ", " << x;
    }
  }
}

TEST(Images, planes_become_interleaved_channels) {
  const std::vector<uint8_t> planes = {1, 2, 10, 20, 100, 200};
  const Bitmap bitmap = image_grid(ImagesView<uint8_t>{.pixels = planes, .height = 1, .width = 2});
  EXPECT_THAT(bitmap.pixels, ElementsAre(1, 10, 100, 2, 20, 200));
}

TEST(Images, floats_are_scaled_clipped_and_truncated) {
  const std::vector<float> pixels = {0.0F, 0.5F, 1.0F, 7.0F, -1.0F, std::numeric_limits<float>::quiet_NaN()};
  const Bitmap bitmap = image_grid(ImagesView<float>{.pixels = pixels, .channels = 1, .height = 1, .width = 6});
  EXPECT_THAT(bitmap.pixels, ElementsAre(0, 127, 255, 255, 0, 0));
}

TEST(Images, png_is_lossless_for_every_number_of_channels) {
  const png_uint_32 formats[] = {PNG_FORMAT_GRAY, PNG_FORMAT_GA, PNG_FORMAT_RGB, PNG_FORMAT_RGBA};
  for (int64_t channels = 1; channels <= 4; ++channels) {
    Bitmap bitmap{.height = 13, .width = 7, .channels = channels};
    for (int64_t i = 0; i < 13 * 7 * channels; ++i) bitmap.pixels.push_back(static_cast<uint8_t>(i * 37 + i / 11));
    int64_t height = 0;
    int64_t width = 0;
    EXPECT_EQ(decode(encode_png(bitmap), formats[channels - 1], height, width), bitmap.pixels) << channels;
    EXPECT_EQ(height, 13);
    EXPECT_EQ(width, 7);
  }
}

TEST(Images, a_shape_that_is_none_is_refused_by_its_numbers) {
  const std::vector<uint8_t> pixels(12);
  const auto refused = [&](ImagesView<uint8_t> images, const char* message) {
    images.pixels = pixels;
    EXPECT_THAT([&] { image_grid(images); }, ThrowsMessage<std::invalid_argument>(HasSubstr(message)));
  };
  refused({.pixels = {}, .channels = 5, .height = 1, .width = 1}, "1x5x1x1");
  refused({.pixels = {}, .channels = 3, .height = 0, .width = 4}, "1x3x0x4");
  refused({.pixels = {}, .channels = 3, .height = 2, .width = 3}, "has 18 pixels, got 12");
  refused({.pixels = {}, .count = 0, .channels = 3, .height = 2, .width = 2}, "0x3x2x2");
  refused({.pixels = {}, .count = int64_t{1} << 60, .channels = 3, .height = 1 << 16, .width = 1 << 16}, "Invalid");
  EXPECT_THROW(image_grid(ImagesView<uint8_t>{.pixels = pixels, .height = 2, .width = 2}, 0), std::invalid_argument);
}

}  // namespace
}  // namespace ddp

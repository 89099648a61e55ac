// Colour jitter: known pixels, ranges, randomness. Pillow's pixels are compared in decoders_test.py.
#include "data/color_jitter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <stdexcept>

namespace ddp {
namespace {

using ::testing::ElementsAre;

Image pixels(std::vector<uint8_t> values) {
  return {.height = 1, .width = static_cast<int64_t>(values.size() / 3), .pixels = std::move(values)};
}

TEST(ColorJitter, brightness_scales_and_clips) {
  Image image = pixels({10, 101, 200});
  adjust_brightness(image, 1.5);
  EXPECT_THAT(image.pixels, ElementsAre(15, 151, 255));
  adjust_brightness(image, 0);
  EXPECT_THAT(image.pixels, ElementsAre(0, 0, 0));
}

TEST(ColorJitter, contrast_moves_from_the_mean_grey) {
  Image image = pixels({0, 0, 0, 200, 200, 200});
  adjust_contrast(image, 0.5);
  EXPECT_THAT(image.pixels, ElementsAre(50, 50, 50, 150, 150, 150));
  adjust_contrast(image, 2);
  EXPECT_THAT(image.pixels, ElementsAre(0, 0, 0, 200, 200, 200));
}

TEST(ColorJitter, saturation_zero_is_grey_and_one_changes_nothing) {
  Image image = pixels({255, 0, 0});
  adjust_saturation(image, 1);
  EXPECT_THAT(image.pixels, ElementsAre(255, 0, 0));
  adjust_saturation(image, 0);
  EXPECT_THAT(image.pixels, ElementsAre(76, 76, 76));
}

TEST(ColorJitter, a_third_of_a_turn_leads_from_red_to_green) {
  Image image = pixels({255, 0, 0, 90, 90, 90});
  adjust_hue(image, 1.0 / 3);
  EXPECT_THAT(image.pixels, ElementsAre(0, 255, 0, 90, 90, 90));
}

TEST(ColorJitter, depends_on_the_random_numbers_alone_and_stays_in_range) {
  const Image image = pixels({10, 200, 30, 250, 4, 128});
  const ColorJitterOptions options{.brightness = 0.4, .contrast = 0.4, .saturation = 0.4, .hue = 0.1};
  bool differs = false;
  for (int64_t index = 0; index < 50; ++index) {
    Image a = image;
    Image b = image;
    SampleRandom first(1, 0, index);
    SampleRandom second(1, 0, index);
    color_jitter(a, options, first);
    color_jitter(b, options, second);
    EXPECT_EQ(a.pixels, b.pixels);
    differs = differs || a.pixels != image.pixels;
  }
  EXPECT_TRUE(differs);
  Image same = image;
  SampleRandom random(1, 0, 0);
  color_jitter(same, {}, random);
  EXPECT_EQ(same.pixels, image.pixels);
}

TEST(ColorJitter, refuses_values_out_of_range) {
  EXPECT_THROW(check_color_jitter({.brightness = -0.1}), std::invalid_argument);
  EXPECT_THROW(check_color_jitter({.hue = 0.6}), std::invalid_argument);
  EXPECT_THROW(check_color_jitter({.contrast = std::numeric_limits<double>::quiet_NaN()}), std::invalid_argument);
  check_color_jitter({.brightness = 2, .hue = 0.5});
}

}  // namespace
}  // namespace ddp

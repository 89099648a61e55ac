// Colour jitter: known pixels, ranges, randomness. Pillow's pixels are compared in decoders_test.py.
#include <limits>
#include <stdexcept>

#include <ddprun/data/image.h>

#include "tests/support/catch.h"
#include "tests/support/matchers.h"

namespace ddp {
namespace {

using test::ElementsAre;

Image pixels(std::vector<uint8_t> values) {
  return {.height = 1, .width = static_cast<int64_t>(values.size() / 3), .pixels = std::move(values)};
}

TEST_CASE("ColorJitter: brightness scales and clips") {
  Image image = pixels({10, 101, 200});
  adjust_brightness(image, 1.5);
  CHECK_THAT(image.pixels, ElementsAre(15, 151, 255));
  adjust_brightness(image, 0);
  CHECK_THAT(image.pixels, ElementsAre(0, 0, 0));
}

TEST_CASE("ColorJitter: contrast moves from the mean grey") {
  Image image = pixels({0, 0, 0, 200, 200, 200});
  adjust_contrast(image, 0.5);
  CHECK_THAT(image.pixels, ElementsAre(50, 50, 50, 150, 150, 150));
  adjust_contrast(image, 2);
  CHECK_THAT(image.pixels, ElementsAre(0, 0, 0, 200, 200, 200));
}

TEST_CASE("ColorJitter: saturation zero is grey and one changes nothing") {
  Image image = pixels({255, 0, 0});
  adjust_saturation(image, 1);
  CHECK_THAT(image.pixels, ElementsAre(255, 0, 0));
  adjust_saturation(image, 0);
  CHECK_THAT(image.pixels, ElementsAre(76, 76, 76));
}

TEST_CASE("ColorJitter: a third of a turn leads from red to green") {
  Image image = pixels({255, 0, 0, 90, 90, 90});
  adjust_hue(image, 1.0 / 3);
  CHECK_THAT(image.pixels, ElementsAre(0, 255, 0, 90, 90, 90));
}

TEST_CASE("ColorJitter: depends on the random numbers alone and stays in range") {
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
    CHECK(a.pixels == b.pixels);
    differs = differs || a.pixels != image.pixels;
  }
  CHECK(differs);
  Image same = image;
  SampleRandom random(1, 0, 0);
  color_jitter(same, {}, random);
  CHECK(same.pixels == image.pixels);
}

TEST_CASE("ColorJitter: refuses values out of range") {
  CHECK_THROWS_AS(check_color_jitter({.brightness = -0.1}), std::invalid_argument);
  CHECK_THROWS_AS(check_color_jitter({.hue = 0.6}), std::invalid_argument);
  CHECK_THROWS_AS(check_color_jitter({.contrast = std::numeric_limits<double>::quiet_NaN()}), std::invalid_argument);
  check_color_jitter({.brightness = 2, .hue = 0.5});
}

}  // namespace
}  // namespace ddp

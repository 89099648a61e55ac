// Scaling against what Pillow 12 gives, and the random parts that training takes.
#include <algorithm>
#include <stdexcept>
#include <utility>

#include <ddprun/data/image.h>

#include "data/transforms/resize_kernels.h"
#include "tests/support/catch.h"

namespace ddp {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;
using Catch::Matchers::RangeEquals;

Image picture(int64_t height, int64_t width) {
  Image image{.height = height, .width = width};
  for (int64_t i = 0; i < height * width * 3; ++i) image.pixels.push_back(static_cast<uint8_t>(i * 37 % 256));
  return image;
}

TEST_CASE("Resize: gives Pillow's pixels") {
  const Image image = picture(5, 7);
  CHECK_THAT(resize(image, {.height = 5, .width = 7}, 2, 3).pixels,
             RangeEquals(std::vector<int>{104, 86, 123, 146, 123, 100, 123, 160, 142, 105, 104, 141, 145, 122, 118, 141,
                                          161, 131}));
  CHECK_THAT(resize(image, {.top = 1, .left = 1, .height = 3, .width = 3}, 4, 2).pixels,
             RangeEquals(std::vector<int>{162, 103, 140, 140, 81, 118, 168, 109, 146, 146, 87, 124,
                                          174, 115, 152, 152, 93, 130, 180, 121, 158, 158, 99, 136}));
}

TEST_CASE("Resize: the loops of this processor have the bits of the portable ones") {
  const ResizeKernels& fast = resize_kernels();
  const ResizeKernels& portable = portable_resize_kernels();
  for (int64_t seed = 0; seed < 200; ++seed) {
    SampleRandom random(seed, 0, 0);
    const int64_t width = 1 + random.below(100), windows = 1 + random.below(20);
    const int64_t taps = 1 + random.below(seed % 4 == 0 ? 60 : 7);
    std::vector<uint8_t> rows(static_cast<size_t>(3 * width * taps + kOverreadBytes));
    for (uint8_t& byte : rows) byte = static_cast<uint8_t>(random.bits());
    ResizeWeights weights{.stride = (taps + 2) / 2 * 2};
    for (int64_t i = 0; i < windows; ++i) {
      const int64_t begin = random.below(static_cast<uint64_t>(width));
      weights.windows.push_back({.begin = begin, .count = std::min(taps, width - begin)});
      weights.most = std::max(weights.most, weights.windows.back().count);
      for (int64_t k = 0; k < weights.stride; ++k) {
        const bool counts = k < weights.windows.back().count;
        weights.values.push_back(counts ? static_cast<int32_t>((1 << kWeightFractionBits) / taps - random.below(3))
                                        : 0);
      }
    }
    std::vector<uint8_t> across(static_cast<size_t>(3 * windows)), across_expected = across;
    const auto spread = fast.spread != nullptr ? fast.spread(weights) : std::vector<int32_t>();
    fast.across(rows.data(), weights, spread, across.data());
    portable.across(rows.data(), weights, {}, across_expected.data());
    REQUIRE(across == across_expected);
    std::vector<uint8_t> down(static_cast<size_t>(3 * width)), down_expected = down;
    const std::span of_window(weights.values.data(), static_cast<size_t>(weights.windows[0].count));
    fast.down(rows.data(), 3 * width, of_window, down.data());
    portable.down(rows.data(), 3 * width, of_window, down_expected.data());
    REQUIRE(down == down_expected);
  }
}

// With AddressSanitizer: nothing is read after the last pixel.
TEST_CASE("Resize: narrow pictures have the pixels of wide ones") {
  for (const int64_t height : {1, 2, 3, 9}) {
    for (const int64_t width : {1, 2, 3, 4, 5, 7}) {
      Image narrow{.height = height, .width = width};
      Image wide{.height = height, .width = width + 20};
      for (int64_t i = 0; i < height; ++i) {
        for (int64_t k = 0; k < wide.width * 3; ++k) {
          const auto value = static_cast<uint8_t>(50 * i + 11 * k);
          wide.pixels.push_back(value);
          if (k < width * 3) narrow.pixels.push_back(value);
        }
      }
      narrow.pixels.shrink_to_fit();
      const Box box{.height = height, .width = width};
      CHECK(resize(narrow, box, 8, 8).pixels == resize(wide, box, 8, 8).pixels);
    }
  }
}

TEST_CASE("Resize: to the same size changes nothing") {
  const Image image = picture(9, 4);
  CHECK(resize(image, {.height = 9, .width = 4}, 9, 4).pixels == image.pixels);
}

TEST_CASE("Resize: of one colour stays that colour") {
  Image image{.height = 50, .width = 31};
  image.pixels.assign(50 * 31 * 3, 255);
  for (const int64_t size : {1, 7, 64, 300}) {
    const Image made = resize(image, {.height = 50, .width = 31}, size, size);
    INFO(size);
    CHECK(made.pixels == std::vector<uint8_t>(static_cast<size_t>(size * size * 3), 255));
  }
}

TEST_CASE("Resize: a box outside the picture and sizes that are none are refused") {
  const Image image = picture(5, 7);
  const auto refused = [&](const Box& box, int64_t height, int64_t width) {
    CHECK_THROWS_MATCHES(resize(image, box, height, width), std::invalid_argument,
                         MessageMatches(ContainsSubstring("within 7x5 pixels")));
  };
  refused({.height = 6, .width = 7}, 2, 2);
  refused({.left = 1, .height = 5, .width = 7}, 2, 2);
  refused({.top = -1, .height = 2, .width = 2}, 2, 2);
  refused({.height = 0, .width = 2}, 2, 2);
  refused({.height = 5, .width = 7}, 0, 2);
  refused({.height = 5, .width = 7}, 2, 1 << 20);
}

TEST_CASE("ResizedCrop: lies within the picture and has the area and ratio of torchvision") {
  for (int64_t index = 0; index < 3000; ++index) {
    SampleRandom random(1, 2, index);
    const Box box = draw_resized_crop(120, 200, random);
    REQUIRE(box.top >= 0);
    REQUIRE(box.left >= 0);
    REQUIRE(box.top + box.height <= 120);
    REQUIRE(box.left + box.width <= 200);
    const double area = static_cast<double>(box.height * box.width) / (120 * 200);
    REQUIRE(area > 0.075);
    const double ratio = static_cast<double>(box.width) / static_cast<double>(box.height);
    REQUIRE(ratio > 0.72);
    REQUIRE(ratio < 1.38);
  }
}

TEST_CASE("ResizedCrop: of a picture of any shape ends") {
  SampleRandom random(1, 2, 3);
  for (const auto& [height, width] : std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {1, 5000}, {5000, 1}, {2, 3}}) {
    const Box box = draw_resized_crop(height, width, random);
    CHECK(box.height >= 1);
    CHECK(box.width >= 1);
    CHECK(box.top + box.height <= height);
    CHECK(box.left + box.width <= width);
  }
}

TEST_CASE("Resize: a part is what the whole has there") {
  const Image image = picture(37, 53);
  for (const auto& [height, width] : {std::pair<int64_t, int64_t>{20, 31}, {90, 100}, {37, 53}, {5, 200}}) {
    const Box box{.top = 3, .left = 2, .height = 30, .width = 47};
    const Image whole = resize(image, box, height, width);
    const Box part{.top = height / 3, .left = width / 4, .height = height / 2, .width = width / 2};
    const Image made = resize_part(image, box, height, width, part);
    for (int64_t y = 0; y < part.height; ++y) {
      const uint8_t* expected = whole.pixels.data() + ((part.top + y) * width + part.left) * 3;
      REQUIRE(std::equal(expected, expected + part.width * 3, made.pixels.data() + y * part.width * 3));
    }
  }
  CHECK_THROWS_AS(resize_part(image, {.height = 37, .width = 53}, 9, 9, {.top = 5, .height = 5, .width = 9}),
                  std::invalid_argument);
}

TEST_CASE("Resize: the centre of a strip however long is made without the rest") {
  for (const auto& [height, width] : {std::pair<int64_t, int64_t>{1, 1000}, {1000, 1}, {2, 1'000'000}, {300'000, 3}}) {
    const Image image = picture(height, width);
    const Image centre = resize_and_crop_centre(image, 256, 224);
    CHECK(centre.height == 224);
    CHECK(centre.width == 224);
    CHECK(centre.pixels.size() == 3U * 224 * 224);
  }
}

TEST_CASE("CentreCrop: has the size asked for whatever the shape") {
  for (const auto& [height, width] : std::vector<std::pair<int64_t, int64_t>>{{300, 400}, {10, 90}, {256, 256}}) {
    const Image crop = resize_and_crop_centre(picture(height, width), 64, 48);
    CHECK(crop.height == 48);
    CHECK(crop.width == 48);
    CHECK(crop.pixels.size() == 48U * 48 * 3);
  }
  CHECK_THROWS_AS(resize_and_crop_centre(picture(9, 9), 10, 11), std::invalid_argument);
}

TEST_CASE("NormalizeImage: makes planes and mirrors") {
  const auto table = normalization_table({.mean = {0.5F, 0.25F, 0}, .stddev = {0.5F, 1, 2}});
  const Image image = picture(3, 4);
  std::vector<float> out(36);
  for (const bool is_flipped : {false, true}) {
    normalize_image(image, is_flipped, table, out);
    for (size_t c = 0; c < 3; ++c) {
      for (size_t y = 0; y < 3; ++y) {
        for (size_t x = 0; x < 4; ++x) {
          const size_t from = is_flipped ? 3 - x : x;
          REQUIRE(out[c * 12 + y * 4 + x] == table[c][image.pixels[(y * 4 + from) * 3 + c]]);
        }
      }
    }
  }
  CHECK_THROWS_AS(normalize_image(image, false, table, std::span(out).first(35)), std::invalid_argument);
}

}  // namespace
}  // namespace ddp

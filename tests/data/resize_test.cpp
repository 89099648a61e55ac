// Scaling against what Pillow 12 gives, and the random parts that training takes.
#include "data/resize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "data/image_transform.h"

namespace ddp {
namespace {

using testing::ElementsAreArray;
using testing::HasSubstr;
using testing::ThrowsMessage;

Image picture(int64_t height, int64_t width) {
  Image image{.height = height, .width = width};
  for (int64_t i = 0; i < height * width * 3; ++i) image.pixels.push_back(static_cast<uint8_t>(i * 37 % 256));
  return image;
}

TEST(Resize, gives_pillows_pixels) {
  const Image image = picture(5, 7);
  EXPECT_THAT(
      resize(image, {.height = 5, .width = 7}, 2, 3).pixels,
      ElementsAreArray({104, 86, 123, 146, 123, 100, 123, 160, 142, 105, 104, 141, 145, 122, 118, 141, 161, 131}));
  EXPECT_THAT(resize(image, {.top = 1, .left = 1, .height = 3, .width = 3}, 4, 2).pixels,
              ElementsAreArray({162, 103, 140, 140, 81, 118, 168, 109, 146, 146, 87, 124,
                                174, 115, 152, 152, 93, 130, 180, 121, 158, 158, 99, 136}));
}

TEST(Resize, to_the_same_size_changes_nothing) {
  const Image image = picture(9, 4);
  EXPECT_EQ(resize(image, {.height = 9, .width = 4}, 9, 4).pixels, image.pixels);
}

TEST(Resize, of_one_colour_stays_that_colour) {
  Image image{.height = 50, .width = 31};
  image.pixels.assign(50 * 31 * 3, 255);
  for (const int64_t size : {1, 7, 64, 300}) {
    const Image made = resize(image, {.height = 50, .width = 31}, size, size);
    EXPECT_EQ(made.pixels, std::vector<uint8_t>(static_cast<size_t>(size * size * 3), 255)) << size;
  }
}

TEST(Resize, a_box_outside_the_picture_and_sizes_that_are_none_are_refused) {
  const Image image = picture(5, 7);
  const auto refused = [&](const Box& box, int64_t height, int64_t width) {
    EXPECT_THAT([&] { resize(image, box, height, width); },
                ThrowsMessage<std::invalid_argument>(HasSubstr("within 7x5 pixels")));
  };
  refused({.height = 6, .width = 7}, 2, 2);
  refused({.left = 1, .height = 5, .width = 7}, 2, 2);
  refused({.top = -1, .height = 2, .width = 2}, 2, 2);
  refused({.height = 0, .width = 2}, 2, 2);
  refused({.height = 5, .width = 7}, 0, 2);
  refused({.height = 5, .width = 7}, 2, 1 << 20);
}

TEST(ResizedCrop, lies_within_the_picture_and_has_the_area_and_ratio_of_torchvision) {
  for (int64_t index = 0; index < 3000; ++index) {
    SampleRandom random(1, 2, index);
    const Box box = draw_resized_crop(120, 200, random);
    ASSERT_GE(box.top, 0);
    ASSERT_GE(box.left, 0);
    ASSERT_LE(box.top + box.height, 120);
    ASSERT_LE(box.left + box.width, 200);
    const double area = static_cast<double>(box.height * box.width) / (120 * 200);
    ASSERT_GT(area, 0.075);
    const double ratio = static_cast<double>(box.width) / static_cast<double>(box.height);
    ASSERT_GT(ratio, 0.72);
    ASSERT_LT(ratio, 1.38);
  }
}

TEST(ResizedCrop, of_a_picture_of_any_shape_ends) {
  SampleRandom random(1, 2, 3);
  for (const auto& [height, width] : std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {1, 5000}, {5000, 1}, {2, 3}}) {
    const Box box = draw_resized_crop(height, width, random);
    EXPECT_GE(box.height, 1);
    EXPECT_GE(box.width, 1);
    EXPECT_LE(box.top + box.height, height);
    EXPECT_LE(box.left + box.width, width);
  }
}

TEST(CentreCrop, has_the_size_asked_for_whatever_the_shape) {
  for (const auto& [height, width] : std::vector<std::pair<int64_t, int64_t>>{{300, 400}, {10, 90}, {256, 256}}) {
    const Image crop = resize_and_crop_centre(picture(height, width), 64, 48);
    EXPECT_EQ(crop.height, 48);
    EXPECT_EQ(crop.width, 48);
    EXPECT_EQ(crop.pixels.size(), 48U * 48 * 3);
  }
  EXPECT_THROW(resize_and_crop_centre(picture(9, 9), 10, 11), std::invalid_argument);
}

TEST(NormalizeImage, makes_planes_and_mirrors) {
  const auto table = normalization_table({.mean = {0.5F, 0.25F, 0}, .stddev = {0.5F, 1, 2}});
  const Image image = picture(3, 4);
  std::vector<float> out(36);
  for (const bool is_flipped : {false, true}) {
    normalize_image(image, is_flipped, table, out);
    for (size_t c = 0; c < 3; ++c) {
      for (size_t y = 0; y < 3; ++y) {
        for (size_t x = 0; x < 4; ++x) {
          const size_t from = is_flipped ? 3 - x : x;
          ASSERT_EQ(out[c * 12 + y * 4 + x], table[c][image.pixels[(y * 4 + from) * 3 + c]]);
        }
      }
    }
  }
  EXPECT_THROW(normalize_image(image, false, table, std::span(out).first(35)), std::invalid_argument);
}

}  // namespace
}  // namespace ddp

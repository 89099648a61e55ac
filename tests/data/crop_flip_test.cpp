#include <map>
#include <stdexcept>
#include <vector>

#include <ddprun/data/image.h>

#include "tests/support/catch.h"

namespace ddp {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;
using Catch::Matchers::WithinAbs;

constexpr int64_t kChannels = 3;
constexpr int64_t kHeight = 6;
constexpr int64_t kWidth = 5;

std::vector<uint8_t> counted_picture() {
  std::vector<uint8_t> pixels;
  for (int64_t i = 0; i < kChannels * kHeight * kWidth; ++i) pixels.push_back(static_cast<uint8_t>(i * 2 + 1));
  return pixels;
}

TEST_CASE("CropFlip: is a crop of the zero-padded picture then mirrored then normalized") {
  const auto table = normalization_table({.mean = {0.5F, 0.25F, 0.125F}, .stddev = {0.5F, 0.25F, 2.0F}});
  const std::vector<uint8_t> pixels = counted_picture();
  std::vector<float> out(pixels.size());
  for (int64_t down = -7; down <= 7; ++down) {
    for (int64_t right = -7; right <= 7; ++right) {
      for (const bool is_flipped : {false, true}) {
        crop_flip_normalize(pixels, kChannels, kHeight, kWidth,
                            {.down = down, .right = right, .is_flipped = is_flipped}, table, out);
        size_t at = 0;
        for (int64_t c = 0; c < kChannels; ++c) {
          for (int64_t y = 0; y < kHeight; ++y) {
            for (int64_t x = 0; x < kWidth; ++x, ++at) {
              const int64_t from_y = y + down;
              const int64_t from_x = (is_flipped ? kWidth - 1 - x : x) + right;
              const bool is_inside = from_y >= 0 && from_y < kHeight && from_x >= 0 && from_x < kWidth;
              const size_t from = static_cast<size_t>((c * kHeight + from_y) * kWidth + from_x);
              INFO("down " << down << ", right " << right << ", flipped " << is_flipped);
              REQUIRE(out[at] == table[static_cast<size_t>(c)][is_inside ? pixels[from] : 0]);
            }
          }
        }
      }
    }
  }
}

TEST_CASE("CropFlip: draws depend on seed, epoch and index and on nothing else") {
  const CropFlipOptions options{.seed = 3};
  const auto same = [](const CropFlip& a, const CropFlip& b) {
    return a.down == b.down && a.right == b.right && a.is_flipped == b.is_flipped;
  };
  int equal_to_next_index = 0;
  int equal_to_next_epoch = 0;
  int equal_to_next_seed = 0;
  for (int64_t index = 0; index < 1000; ++index) {
    const CropFlip draw = draw_crop_flip(options, 5, index);
    CHECK(same(draw, draw_crop_flip(options, 5, index)));
    equal_to_next_index += same(draw, draw_crop_flip(options, 5, index + 1)) ? 1 : 0;
    equal_to_next_epoch += same(draw, draw_crop_flip(options, 6, index)) ? 1 : 0;
    equal_to_next_seed += same(draw, draw_crop_flip({.seed = 4}, 5, index)) ? 1 : 0;
  }
  // By chance 1 in 162.
  CHECK(equal_to_next_index < 30);
  CHECK(equal_to_next_epoch < 30);
  CHECK(equal_to_next_seed < 30);
}

TEST_CASE("CropFlip: draws are uniform") {
  std::map<int64_t, int> down;
  std::map<int64_t, int> right;
  int flipped = 0;
  constexpr int kDraws = 90'000;
  for (int64_t index = 0; index < kDraws; ++index) {
    const CropFlip draw = draw_crop_flip({.padding = 4}, 0, index);
    ++down[draw.down];
    ++right[draw.right];
    flipped += draw.is_flipped ? 1 : 0;
  }
  // 10,000 ± 94 each; 5 standard deviations.
  for (const auto& counts : {down, right}) {
    REQUIRE(counts.size() == 9U);
    CHECK(counts.begin()->first == -4);
    for (const auto& [place, count] : counts) {
      INFO(place);
      CHECK_THAT(count, WithinAbs(kDraws / 9, 500));
    }
  }
  CHECK_THAT(flipped, WithinAbs(kDraws / 2, 750));
}

TEST_CASE("CropFlip: without padding and flip nothing changes") {
  const CropFlip draw = draw_crop_flip({.padding = 0, .flip = false}, 3, 4);
  CHECK(draw.down == 0);
  CHECK(draw.right == 0);
  CHECK_FALSE(draw.is_flipped);
}

TEST_CASE("CropFlip: sizes that do not fit are refused") {
  std::vector<float> out(10);
  const std::vector<uint8_t> pixels = counted_picture();
  CHECK_THROWS_MATCHES(crop_flip_normalize(pixels, kChannels, kHeight, kWidth, {}, {}, out), std::invalid_argument,
                       MessageMatches(ContainsSubstring("90 and 10")));
  CHECK_THROWS_MATCHES(draw_crop_flip({.padding = -1}, 0, 0), std::invalid_argument,
                       MessageMatches(ContainsSubstring("-1")));
}

}  // namespace
}  // namespace ddp

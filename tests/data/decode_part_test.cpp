// Pictures of which only a part is decoded: the same pixels as of the whole, and close ones at a reduced size.
#include <algorithm>
#include <cstdlib>
#include <stdexcept>

#include <ddprun/data/byte_source.h>
#include <ddprun/data/image.h>

#include "tests/data/pictures.h"
#include "tests/support/catch.h"

namespace ddp {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

std::vector<uint8_t> to_bytes(const std::string& content) {
  return {content.begin(), content.end()};
}

/// JPEG files of this picture in every way that decoders treat differently, and one that is not a JPEG file.
std::vector<std::string> encoded(const Image& picture) {
  std::vector<std::string> files;
  for (const auto& scans : {std::vector<jpeg_scan_info>(), test::progressive_scans(9, 1)}) {
    for (const auto& [across, down] : {std::pair{1, 1}, {2, 1}, {2, 2}, {1, 2}, {4, 1}}) {
      files.push_back(test::jpeg(picture, 90, scans, across, down));
    }
  }
  files.push_back(test::jpeg_in_inks(picture, 90, /*is_ycck=*/false));
  files.push_back(test::jpeg_in_inks(picture, 90, /*is_ycck=*/true));
  files.push_back(test::png(picture, PNG_FORMAT_RGB));
  return files;
}

ResizedPart drawn(int64_t height, int64_t width, SampleRandom& random) {
  const auto below = [&](int64_t most) { return random.below(static_cast<uint64_t>(most)); };
  ResizedPart wanted;
  wanted.box.height = 1 + below(height);
  wanted.box.width = 1 + below(width);
  wanted.box.top = below(height - wanted.box.height + 1);
  wanted.box.left = below(width - wanted.box.width + 1);
  wanted.height = 1 + below(60);
  wanted.width = 1 + below(60);
  wanted.part.height = 1 + below(wanted.height);
  wanted.part.width = 1 + below(wanted.width);
  wanted.part.top = below(wanted.height - wanted.part.height + 1);
  wanted.part.left = below(wanted.width - wanted.part.width + 1);
  return wanted;
}

TEST_CASE("DecodePart: rows and columns that are decoded alone have the pixels of the whole picture") {
  for (const auto& [height, width] : {std::pair<int64_t, int64_t>{90, 131}, {200, 33}, {16, 16}, {1, 70}, {70, 1}}) {
    const auto files = encoded(test::smooth_picture(height, width));
    for (size_t number = 0; number < files.size(); ++number) {
      const auto file = to_bytes(files[number]);
      const Image whole = decode_image(file, "picture");
      for (int64_t i = 0; i < 40; ++i) {
        SampleRandom random(number, height, i);
        const ResizedPart wanted = drawn(height, width, random);
        INFO("file " << number << ", case " << i << ", picture " << height << "x" << width);
        const auto choose = [&](int64_t h, int64_t w) {
          CHECK((h == height && w == width));
          return wanted;
        };
        const Image expected = resize_part(whole, wanted.box, wanted.height, wanted.width, wanted.part);
        for (const PartDecoding decoding : {PartDecoding::kWhole, PartDecoding::kRows}) {
          const Image part = decode_part(file, "picture", choose, decoding);
          REQUIRE(part.height == expected.height);
          REQUIRE(part.width == expected.width);
          REQUIRE(part.pixels == expected.pixels);
        }
      }
    }
  }
}

/// What a decoding gives, or the message of what it throws.
template <typename Decode>
std::pair<std::vector<uint8_t>, std::string> outcome_of(const Decode& decode) {
  try {
    return {decode().pixels, ""};
  } catch (const DataError& error) {
    return {{}, error.what()};
  }
}

TEST_CASE("DecodePart: files that are read whole are refused where the whole picture is") {
  constexpr int64_t kHeight = 120, kWidth = 75;
  const auto files = encoded(test::smooth_picture(kHeight, kWidth));
  int refused = 0, accepted = 0;
  for (size_t number = 0; number < files.size(); ++number) {
    for (int64_t i = 0; i < 150; ++i) {
      SampleRandom random(number, kWidth, i);
      std::vector<uint8_t> file = to_bytes(files[number]);
      const auto place = [&] { return static_cast<size_t>(random.below(file.size())); };
      if (i % 2 == 0) file.resize(place());
      for (int64_t k = i % 3; k > 0 && !file.empty(); --k) file[place()] ^= static_cast<uint8_t>(1 << random.below(8));
      INFO("file " << number << ", case " << i);
      ResizedPart wanted;
      const auto choose = [&](int64_t height, int64_t width) { return wanted = drawn(height, width, random); };
      const auto part = outcome_of([&] { return decode_part(file, "picture", choose, PartDecoding::kWhole); });
      const auto expected = outcome_of([&] {
        const Image whole = decode_image(file, "picture");
        return resize_part(whole, wanted.box, wanted.height, wanted.width, wanted.part);
      });
      REQUIRE(part.second == expected.second);
      REQUIRE((part.first == expected.first));
      ++(part.second.empty() ? accepted : refused);
    }
  }
  CHECK(refused > 100);
  CHECK(accepted > 100);
}

TEST_CASE("DecodePart: a reduced size gives close pixels, and the same ones where nothing is to be reduced") {
  const Image picture = test::smooth_picture(240, 320);
  const auto file = to_bytes(test::jpeg(picture, 95));
  const auto difference = [&](int64_t shorter_side, int64_t size) {
    const auto choose = [&](int64_t h, int64_t w) { return centre_part(h, w, shorter_side, size); };
    const Image whole = decode_part(file, "picture", choose, PartDecoding::kWhole);
    const Image reduced = decode_part(file, "picture", choose, PartDecoding::kReduced);
    REQUIRE(whole.pixels.size() == reduced.pixels.size());
    double sum = 0;
    for (size_t i = 0; i < whole.pixels.size(); ++i) sum += std::abs(whole.pixels[i] - reduced.pixels[i]);
    return sum / static_cast<double>(whole.pixels.size());
  };
  CHECK(difference(200, 180) == 0);
  CHECK(difference(121, 100) == 0);
  CHECK(difference(120, 100) < 1.5);
  CHECK(difference(60, 50) < 1.5);
  CHECK(difference(20, 20) < 1.5);
  CHECK(difference(5, 4) < 4);
}

TEST_CASE("DecodePart: what the choice throws comes through, and damage is named where it is decoded") {
  const auto file = to_bytes(test::jpeg(test::smooth_picture(200, 100), 90));
  const std::vector<uint8_t> cut(file.begin(), file.begin() + static_cast<int64_t>(file.size()) * 3 / 4);
  const auto rows = [](int64_t top) {
    return [top](int64_t, int64_t) {
      return ResizedPart{.box = {.top = top, .height = 8, .width = 100}, .height = 8, .width = 8, .part = {0, 0, 8, 8}};
    };
  };
  for (const PartDecoding decoding : {PartDecoding::kWhole, PartDecoding::kRows, PartDecoding::kReduced}) {
    const auto fails = [](int64_t, int64_t) -> ResizedPart { throw std::out_of_range("no such part"); };
    CHECK_THROWS_AS(decode_part(file, "picture", fails, decoding), std::out_of_range);
    CHECK_THROWS_AS(decode_part(file, "picture", rows(195), decoding), std::invalid_argument);
    CHECK_THROWS_MATCHES(decode_part(cut, "cut.jpg", rows(192), decoding), DataError,
                         MessageMatches(ContainsSubstring("cut.jpg")));
    CHECK_THROWS_AS(decode_part({}, "empty", rows(0), decoding), DataError);
  }
  CHECK_THROWS_AS(decode_part(cut, "cut.jpg", rows(0), PartDecoding::kWhole), DataError);
  CHECK(decode_part(cut, "cut.jpg", rows(0), PartDecoding::kRows).pixels ==
        decode_part(file, "whole.jpg", rows(0), PartDecoding::kWhole).pixels);
  CHECK_THROWS_AS(decode_part(file, "large.jpg", rows(0), PartDecoding::kRows, {.most_pixels = 100}), DataError);
}

}  // namespace
}  // namespace ddp

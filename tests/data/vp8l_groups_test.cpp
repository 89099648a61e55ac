// Counting the groups of Huffman codes of WebP's lossless streams, without their pixels.
#include "data/formats/vp8l_groups.h"

#include <string>
#include <utility>
#include <vector>

#include "tests/support/catch.h"

namespace ddp {
namespace {

/// Values of so many bits each, as VP8L has them: the lowest bit first.
std::string stream(const std::vector<std::pair<unsigned, int>>& values) {
  std::string bytes;
  int used = 0;
  for (const auto& [value, count] : values) {
    for (int i = 0; i < count; ++i, ++used) {
      if (used % 8 == 0) bytes.push_back('\0');
      if ((value >> i & 1U) != 0) bytes.back() = static_cast<char>(bytes.back() | 1 << used % 8);
    }
  }
  return bytes;
}

constexpr std::pair<unsigned, int> kNoTransform{0, 1};
constexpr std::pair<unsigned, int> kNoCache{0, 1};
constexpr std::pair<unsigned, int> kGroupsOf4x4{0b0001, 4};
constexpr std::pair<unsigned, int> kZero{0b0001, 4};  // a code of one symbol, which is 0

/// A code of one symbol.
std::pair<unsigned, int> only(unsigned symbol) {
  return {0b101U | symbol << 3, 11};
}

/// All blocks of the picture are in the last of 25,801 groups.
std::string many_groups() {
  return stream({kNoTransform, kNoCache, kGroupsOf4x4, kNoCache, only(200), only(100), kZero, kZero, kZero});
}

std::optional<int64_t> count(const std::string& bytes) {
  return count_vp8l_groups(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size(), {.width = 64, .height = 64});
}

int64_t most(const std::string& bytes) {
  return max_webp_groups(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size(), {.width = 64, .height = 64});
}

std::string chunk(const std::string& name, const std::string& content) {
  std::string bytes = name;
  for (int i = 0; i < 4; ++i) bytes.push_back(static_cast<char>(content.size() >> 8 * i & 255));
  return bytes + content + std::string(content.size() % 2, '\0');
}

TEST_CASE("VP8L groups: a stream says how many it has") {
  CHECK(count(stream({kNoTransform, kNoCache, {0, 1}})) == 1);
  CHECK(count(many_groups()) == 25801);
}

TEST_CASE("VP8L groups: transforms before are passed over") {
  const std::pair<unsigned, int> predictor{0b001, 3}, subtract_green{0b101, 3}, palette{0b111, 3};
  const std::pair<unsigned, int> tiles{0, 3}, two_colours{1, 8};
  CHECK(count(stream({predictor, tiles,        kNoCache, kZero,   kZero,   kZero, kZero, kZero, subtract_green,
                      palette,   two_colours,  kNoCache, kZero,   kZero,   kZero, kZero, kZero, kNoTransform,
                      kNoCache,  kGroupsOf4x4, kNoCache, only(7), only(1), kZero, kZero, kZero})) == 264);
  CHECK_FALSE(count(stream({subtract_green, subtract_green, kNoTransform, kNoCache, {0, 1}})));
}

TEST_CASE("VP8L groups: a stream that is truncated has none") {
  const std::string whole = many_groups();
  for (size_t size = 0; size + 1 < whole.size(); ++size) CHECK_FALSE(count(whole.substr(0, size)));
}

TEST_CASE("VP8L groups: a WebP file has those of its pixels and of its opacity") {
  const std::string header = std::string("\x2f\x3f\xc0\x0f", 4) + '\0';  // 64 x 64
  const std::string pixels = chunk("VP8L", header + many_groups());
  const std::string opacity = chunk("ALPH", "\1" + many_groups());
  CHECK(most(pixels) == 25801);
  CHECK(most(opacity + chunk("VP8 ", "lossy")) == 25801);
  CHECK(most(chunk("ALPH", std::string(1, '\0') + many_groups())) == 1);  // not compressed
  CHECK(most(chunk("RIFF", "WEBP" + chunk("VP8X", std::string(10, '\0')) + pixels)) == 25801);
  CHECK(most(pixels.substr(0, 12)) == 1);
  CHECK(most("") == 1);
}

}  // namespace
}  // namespace ddp

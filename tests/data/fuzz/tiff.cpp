// TIFF files: both byte orders, depths, palettes, inks, opacity, planes, tiles, packed and turned.
#include "tests/data/fuzz/picture.h"
#include "tests/data/picture_files.h"

std::vector<std::string> fuzz::seeds() {
  using ddp::test::TiffBytes;
  const ddp::Image picture = ddp::test::picture(6, 8);
  const auto noise = [](size_t count) {
    std::string bytes;
    for (size_t i = 0; i < count; ++i) bytes.push_back(static_cast<char>(37 * i));
    return bytes;
  };
  const std::string jpeg = ddp::test::jpeg(ddp::test::smooth_picture(16, 16), 75);
  const std::vector<uint64_t> colors(12, 1000);
  return {ddp::test::tiff(picture),
          ddp::test::tiff(picture, {.is_big_endian = true}),
          ddp::test::tiff(picture, {.is_deflated = true, .tags = {{317, {2}}}}),
          ddp::test::tiff(picture, {.tags = {{274, {6}}}}),
          TiffBytes{.tags = {{258, {1}}, {262, {0}}, {277, {1}}}}.bytes(6, 11, noise(12)),
          TiffBytes{.tags = {{258, {2}}, {262, {3}}, {277, {1}}, {320, colors}}}.bytes(6, 8, noise(12)),
          TiffBytes{.is_big_endian = true, .tags = {{258, {16}}, {262, {1}}, {277, {1}}}}.bytes(6, 8, noise(96)),
          TiffBytes{.tags = {{258, {8, 8, 8, 8}}, {262, {5}}, {277, {4}}}}.bytes(6, 8, noise(192)),
          TiffBytes{.tags = {{258, {8, 8, 8, 8}}, {277, {4}}, {338, {1}}}}.bytes(6, 8, noise(192)),
          TiffBytes{.tags = {{284, {2}}, {273, {8, 56, 104}}, {279, {48, 48, 48}}}}.bytes(6, 8, noise(144)),
          TiffBytes{.tags = {{322, {16}}, {323, {16}}, {324, {8}}, {325, {768}}}}.bytes(6, 8, noise(768)),
          TiffBytes{.tags = {{259, {7}}, {262, {6}}, {530, {2, 2}}}}.bytes(16, 16, jpeg),
          TiffBytes{.tags = {{262, {6}}, {530, {1, 1}}}}.bytes(6, 8, noise(144)),
          TiffBytes{.tags = {{259, {32773}}}}.bytes(6, 8, "\x81\x25\x81\x4A")};
}

std::vector<std::string> fuzz::dictionary() {
  std::vector<std::string> words;
  const std::vector<std::pair<uint64_t, std::vector<uint64_t>>> tags = {
      {256, {1, 16384, 0xFFFFFFFF}},
      {257, {1, 16384, 0xFFFFFFFF}},
      {258, {1, 8, 16, 32}},
      {259, {1, 2, 3, 4, 5, 6, 7, 8, 32773, 32909, 34661, 34887, 34925, 50000, 50001}},
      {262, {0, 1, 2, 3, 5, 6}},
      {274, {3, 6}},
      {277, {0, 1, 3, 4, 6, 1500, 65535}},
      {278, {0, 1, 16384, 0xFFFFFFFF}},
      {279, {0, 1, 0xFFFFFFFF}},
      {284, {1, 2}},
      {322, {0, 16, 16384, 65536, 1 << 24}},
      {323, {16, 16384, 65536, 1 << 24}}};
  for (const bool is_big_endian : {false, true}) {
    for (const auto& [tag, values] : tags) {
      constexpr int kLong = 4;
      for (const uint64_t value : values) {
        words.push_back(
            ddp::test::Bytes(is_big_endian).number(tag, 2).number(kLong, 2).number(1, 4).number(value, 4).text);
      }
    }
  }
  return words;
}

fuzz::Outcome fuzz::run(std::string_view bytes) {
  return read_picture(bytes);
}

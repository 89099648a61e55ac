// TIFF files whose directories are whole and whose claims are not: each two bytes choose a tag and one of the values
// that hurt, up to a byte 0xFF; the rest are the pixels, compressed if the directory says so.
#include "tests/data/fuzz/picture.h"
#include "tests/data/picture_files.h"

namespace {

struct Tag {
  std::uint64_t number;
  std::vector<std::uint64_t> values;
};

const std::vector<Tag>& tags() {
  static const std::vector<Tag> all = {
      {256, {1, 8, 16, 255, 4096, 65535, 16384, 1'000'000, 1 << 28, 0xFFFFFFFF}},
      {257, {1, 8, 16, 255, 4096, 65535, 16384, 1'000'000, 1 << 28, 0xFFFFFFFF}},
      {258, {1, 2, 4, 8, 16, 32, 64, 65535}},
      {259, {1, 2, 3, 4, 5, 6, 7, 8, 32766, 32771, 32773, 32809, 32909, 32946, 34661, 34887, 34925, 50000, 50001}},
      {262, {0, 1, 2, 3, 5, 6, 8, 32844}},
      {266, {1, 2}},
      {273, {8, 0, 0xFFFFFFFF}},
      {274, {1, 2, 3, 6, 8, 9}},
      {277, {0, 1, 3, 4, 6, 16, 100, 1500, 65535}},
      {278, {0, 1, 2, 100, 16384, 0xFFFFFFFF}},
      {279, {0, 1, 10, 1000, 0xFFFFFFFF}},
      {284, {1, 2}},
      {317, {1, 2, 3}},
      {322, {0, 16, 64, 16384, 65536, 1 << 24, 0x7FFFFFF0}},
      {323, {0, 16, 64, 16384, 65536, 1 << 24, 0x7FFFFFF0}},
      {324, {8, 0, 0xFFFFFFFF}},
      {325, {0, 10, 1000, 0xFFFFFFFF}},
      {338, {0, 1, 2}},
      {339, {1, 2, 3}},
      {530, {1, 2, 4}}};
  return all;
}

}  // namespace

std::vector<std::string> fuzz::seeds() {
  const std::string pixels(192, 'x');
  // Tags count from the first above: a width and a height of 8, then SamplesPerPixel, tiles, planes, codecs.
  const std::string size("\0\1\1\1", 4);
  std::vector<std::string> all = {size + '\xFF' + pixels};
  for (char value = 0; value < 9; ++value) all.push_back(size + '\x08' + value + '\xFF' + pixels);
  for (char value = 0; value < 7; ++value) {
    all.push_back(size + '\x0D' + value + '\x0E' + value + std::string("\x0F\0\x10\2", 4) + '\xFF' + pixels);
  }
  for (char value = 0; value < 19; ++value) all.push_back(size + '\3' + value + '\xFF' + pixels);
  all.push_back(std::string("\0\4\1\4\x08\x08\x0B\1\xFF", 9) + pixels);
  return all;
}

fuzz::Outcome fuzz::run(std::string_view bytes) {
  Input input(bytes);
  ddp::test::TiffBytes how;
  for (std::uint8_t choice = input.byte(); choice != 0xFF && !input.is_empty(); choice = input.byte()) {
    const Tag& tag = tags()[choice % tags().size()];
    how.tags[tag.number] = {tag.values[input.byte() % tag.values.size()]};
  }
  how.is_big_endian = bytes.size() % 2 == 1;
  how.is_deflated = how.tags.contains(259) && how.tags[259].front() == 8;
  return read_picture(how.bytes(8, 8, std::string(input.rest())));
}

// GIF files: palettes of their own or none, interlaced, transparent, every size of code.
#include <cstdint>
#include <string>
#include <vector>

#include "tests/data/fuzz/picture.h"

namespace {

std::string number(int value) {
  return {static_cast<char>(value & 255), static_cast<char>(value >> 8)};
}

// Codes of `bits` + 1 bits, with a clear one before each, so that their size stays.
std::string uncompressed(int bits, int count) {
  std::string bytes;
  std::uint32_t buffer = 0;
  int filled = 0;
  const auto put = [&](std::uint32_t code) {
    buffer |= code << filled;
    for (filled += bits + 1; filled >= 8; filled -= 8, buffer >>= 8) bytes.push_back(static_cast<char>(buffer & 255));
  };
  for (int i = 0; i < count; ++i) {
    put(1U << bits);
    put(static_cast<std::uint32_t>(7 * i) & ((1U << bits) - 1));
  }
  put((1U << bits) + 1);
  if (filled > 0) bytes.push_back(static_cast<char>(buffer & 255));
  std::string blocks(1, static_cast<char>(bits));
  for (std::size_t at = 0; at < bytes.size(); at += 200) {
    const std::string block = bytes.substr(at, 200);
    blocks += static_cast<char>(block.size()) + block;
  }
  return blocks + '\0';
}

std::string gif(int bits, int picture_flags, bool has_palette, const std::string& extension = "") {
  std::string file =
      "GIF89a" + number(12) + number(9) + static_cast<char>(has_palette ? 0x80 : 0) + std::string(2, '\0');
  if (has_palette) file += "abcdef";
  file += extension + "," + number(1) + number(0) + number(11) + number(9) + static_cast<char>(picture_flags);
  if ((picture_flags & 0x80) != 0) file += std::string(std::size_t{6} << (picture_flags & 7), 'p');
  return file + uncompressed(bits, 99) + ";";
}

}  // namespace

std::vector<std::string> fuzz::seeds() {
  std::vector<std::string> all;
  for (int bits = 1; bits <= 8; ++bits) all.push_back(gif(bits, bits % 2 == 0 ? 0x40 : 0x81, bits > 4));
  all.push_back(gif(2, 0, true, std::string("!\xF9\4\1\0\0\1\0!\xFE\3abc\0", 14)));
  // Codes of strings, until the table is full: the same index again and again.
  std::string run =
      "GIF87a" + number(90) + number(90) + std::string(3, '\0') + "," + std::string(4, '\0') + number(90) + number(90);
  run += std::string("\0\2\x13\x84\x8F\xA9\xCB\xED\x0F\xA3\x9C\xB4\xDA\x8B\xB3\xDE\xBC\xFB\x0F\x86\xE2\0;", 23);
  all.push_back(run);
  return all;
}

fuzz::Outcome fuzz::run(std::string_view bytes) {
  return read_picture(bytes);
}

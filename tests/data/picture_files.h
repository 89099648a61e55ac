// Made-up BMP, PNM, TIFF and WebP files, byte by byte, and JPEGs in CMYK.
#pragma once

#include <zlib.h>

#include <array>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <ddprun/data/image.h>

#include "tests/data/pictures.h"

namespace ddp::test {

/// Numbers one behind the other, lowest byte first or last.
class Bytes {
 public:
  explicit Bytes(bool is_big_endian = false) : is_big_endian_(is_big_endian) {}
  Bytes& number(uint64_t value, int size) {
    for (int i = 0; i < size; ++i) text.push_back(static_cast<char>(value >> 8 * (is_big_endian_ ? size - 1 - i : i)));
    return *this;
  }
  std::string text;

 private:
  bool is_big_endian_;
};

/// `png` with a chunk behind its header.
inline std::string with_chunk(const std::string& png, const std::string& name, const std::string& content) {
  constexpr size_t kBehindHeader = 33;
  const std::string body = name + content;
  const uLong sum = ::crc32(0, reinterpret_cast<const Bytef*>(body.data()), static_cast<uInt>(body.size()));
  const std::string chunk = Bytes(true).number(content.size(), 4).text + body + Bytes(true).number(sum, 4).text;
  return png.substr(0, kBehindHeader) + chunk + png.substr(kBehindHeader);
}

struct BmpFile {
  int bits = 24;
  int compression = 0;
  bool is_top_down = false;
  std::string palette{};  ///< or the masks

  std::string bytes(int64_t height, int64_t width, const std::string& pixels) const {
    Bytes file;
    file.text = "BM";
    file.number(54 + palette.size() + pixels.size(), 4).number(0, 4).number(54 + palette.size(), 4);
    file.number(40, 4).number(static_cast<uint64_t>(width), 4);
    file.number(static_cast<uint64_t>(is_top_down ? -height : height), 4).number(1, 2);
    file.number(static_cast<uint64_t>(bits), 2).number(static_cast<uint64_t>(compression), 4);
    for (int i = 0; i < 5; ++i) file.number(0, 4);
    return file.text + palette + pixels;
  }
};

/// 24 bits a pixel.
inline std::string bmp(const Image& picture, bool is_top_down = false) {
  std::string pixels;
  for (int64_t i = 0; i < picture.height; ++i) {
    const int64_t y = is_top_down ? i : picture.height - 1 - i;
    for (int64_t x = 0; x < picture.width; ++x) {
      for (int64_t c = 2; c >= 0; --c) {
        pixels.push_back(static_cast<char>(picture.pixels[static_cast<size_t>((y * picture.width + x) * 3 + c)]));
      }
    }
    while (pixels.size() % 4 != 0) pixels.push_back('\0');
  }
  return BmpFile{.is_top_down = is_top_down}.bytes(picture.height, picture.width, pixels);
}

/// A pixmap, P3 with `is_plain` and P6 without.
inline std::string ppm(const Image& picture, bool is_plain) {
  std::string file = (is_plain ? "P3\n" : "P6\n") + std::to_string(picture.width) + " " +
                     std::to_string(picture.height) + "\n# made up\n255\n";
  for (const uint8_t value : picture.pixels) {
    file += is_plain ? std::to_string(value) + "\n" : std::string(1, static_cast<char>(value));
  }
  return file;
}

/// Adds up one picture's directory; `samples` are 3 bytes a pixel unless said otherwise.
struct TiffBytes {
  bool is_big_endian = false;
  bool is_deflated = false;
  std::map<uint64_t, std::vector<uint64_t>> tags{};  ///< further ones, and other values for those below

  std::string bytes(int64_t height, int64_t width, const std::string& samples) const {
    std::map<uint64_t, std::vector<uint64_t>> all = tags;
    const std::string strip = is_deflated ? deflated(samples) : samples;
    const std::map<uint64_t, std::vector<uint64_t>> usual = {{256, {static_cast<uint64_t>(width)}},
                                                             {257, {static_cast<uint64_t>(height)}},
                                                             {258, {8, 8, 8}},
                                                             {259, {is_deflated ? 8U : 1U}},
                                                             {262, {2}},
                                                             {273, {8}},
                                                             {277, {3}},
                                                             {278, {static_cast<uint64_t>(height)}},
                                                             {279, {strip.size()}}};
    for (const auto& [tag, values] : usual) all.emplace(tag, values);
    Bytes file(is_big_endian);
    file.text.append(2, is_big_endian ? 'M' : 'I');
    file.number(42, 2).number(8 + strip.size(), 4).text += strip;
    Bytes further(is_big_endian);
    const uint64_t behind = file.text.size() + 2 + 12 * all.size() + 4;
    file.number(all.size(), 2);
    for (const auto& [tag, values] : all) {
      constexpr int kLong = 4;
      file.number(tag, 2).number(kLong, 2).number(values.size(), 4);
      if (values.size() > 1) file.number(behind + further.text.size(), 4);
      for (const uint64_t value : values) (values.size() > 1 ? further : file).number(value, 4);
    }
    return file.number(0, 4).text + further.text;
  }

 private:
  static std::string deflated(const std::string& bytes) {
    uLongf size = ::compressBound(bytes.size());
    std::string packed(size, '\0');
    ::compress(reinterpret_cast<Bytef*>(packed.data()), &size, reinterpret_cast<const Bytef*>(bytes.data()),
               bytes.size());
    packed.resize(size);
    return packed;
  }
};

inline std::string tiff(const Image& picture, const TiffBytes& how = {}) {
  return how.bytes(picture.height, picture.width, {picture.pixels.begin(), picture.pixels.end()});
}

inline std::string from_hex(std::string_view hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16)));
  }
  return bytes;
}

/// Channel c of pixel i of four channels is 31 * (4 * i + c) modulo 256, in 5 rows of 7; made with Pillow.
inline std::string lossless_webp() {
  return from_hex(
      "524946462c000000574542505650384c1f0000002f06000100cd6544ff030ad9488250566e3116ffbb3398f0f98809c0c2921700");
}
inline std::string webp_with_opacity() {
  return from_hex(
      "5249464634000000574542505650384c270000002f06000110cd6544ff030ad9488250566e3116ffbb3398f0f9100b26a6bbc2087e0230b1"
      "25bd0000");
}
inline std::string lossy_webp() {
  return from_hex(
      "524946468a00000057454250565038580a00000010000000060000040000414c50481900000001b98ce87f4051db3610d2fe0aa3f0af8d41"
      "c4044c008aa51700565038204a000000f001009d012a07000500040068259802747f0015b314dc0000e1dcead7e30e3bd337edf10cf0aa77"
      "b5cd42dfd1fd6738a1bfe83dd4a8b40f654b56cb452e61dd63f1883f0c5b909d6400");
}
inline std::string animated_webp() {
  return from_hex(
      "524946462201000057454250565038580a00000012000000060000040000414e494d06000000000000000000414e4d467800000000000000"
      "0000060000040000000000025650384c600000002f0600011017a1a86d1be8d323fc4995d946c14cdb364fdb993f8ac134d3b6cdd376e60f"
      "7238d4b46dc0c2a7c3b9ff824349944449c0a3244aa224000000060100968dcdb67546f43fcca5b65c62f2c13a6da4e282324c20fee1f3af"
      "7becad0f414e4d4676000000000000000000060000040000000000025650384c5e0000002f0600011017a1a86d1be8d323b0ca1fd846c14c"
      "dbb6b1a7edcc7266dab68d3d6d671a53d8b60d8a0785e4fe0f0000408994488980478994488980030c02002c1b9b6deb8ce87f343af8144b"
      "6e75f4656efbb8d77fe18f20c18c0aaea433");
}
/// The colours of the files above.
inline Image webp_picture() {
  Image image{.height = 5, .width = 7};
  for (int i = 0; i < 35 * 4; ++i) {
    if (i % 4 != 3) image.pixels.push_back(static_cast<uint8_t>(31 * i));
  }
  return image;
}

}  // namespace ddp::test

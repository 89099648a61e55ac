#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <string_view>

#include <ddprun/data/byte_source.h>

#include "data/formats/picture_formats.h"

namespace ddp {
namespace {

constexpr int64_t kMaxSampleValue = 65535;

bool is_space(uint8_t c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}

/// Decodes plain and raw bitmaps (P1, P4), greymaps (P2, P5) and pixmaps (P3, P6) of Netpbm.
class Pnm {
 public:
  Pnm(const std::vector<uint8_t>& bytes, const std::filesystem::path& path) : bytes_(bytes), path_(path) {}

  Image decode(const DecodeOptions& options) {
    const char kind = static_cast<char>(bytes_[1]);
    is_plain_ = kind <= '3';
    is_bitmap_ = kind == '1' || kind == '4';
    channels_ = kind == '3' || kind == '6' ? 3 : 1;
    Image image;
    image.width = number();
    image.height = number();
    check_image_size(path_, image.height, image.width, options);
    if (!is_bitmap_) set_most(number());
    if (at_ < bytes_.size() && is_space(bytes_[at_])) ++at_;  // one white-space byte after the header
    require_bytes(image);
    image.pixels.resize(static_cast<size_t>(image.height * image.width * 3));
    if (!is_bitmap_) {
      read_values(image);
    } else if (is_plain_) {
      read_plain_bits(image);
    } else {
      read_bits(image);
    }
    return image;
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const { throw DataError(path_, "not a valid PNM file: " + why); }

  void skip_space() {
    while (at_ < bytes_.size() && (is_space(bytes_[at_]) || bytes_[at_] == '#')) {
      if (bytes_[at_] == '#') {
        while (at_ < bytes_.size() && bytes_[at_] != '\n' && bytes_[at_] != '\r') ++at_;
      } else {
        ++at_;
      }
    }
  }

  int64_t number() {
    constexpr size_t kMaxDigits = 10;
    skip_space();
    const size_t begin = at_;
    int64_t value = 0;
    for (; at_ < bytes_.size() && bytes_[at_] >= '0' && bytes_[at_] <= '9'; ++at_) {
      if (at_ - begin == kMaxDigits) refuse("a number of more than 10 digits");
      value = value * 10 + (bytes_[at_] - '0');
    }
    if (at_ == bytes_.size() && at_ == begin) refuse("it is truncated");
    if (at_ == begin || (at_ < bytes_.size() && !is_space(bytes_[at_]) && bytes_[at_] != '#')) {
      refuse("expected a number at byte " + std::to_string(begin));
    }
    return value;
  }

  /// As in Pillow, the maximum value becomes 255, and the values below it are scaled and rounded.
  void set_most(int64_t most) {
    if (most < 1 || most > kMaxSampleValue) {
      refuse("expected a maximum value from 1 to 65535 in the header, got " + std::to_string(most));
    }
    for (int64_t value = 0; value <= most; ++value) {
      levels_.push_back(
          static_cast<uint8_t>(std::nearbyint(static_cast<double>(value) / static_cast<double>(most) * 255)));
    }
  }

  bool is_wide() const { return levels_.size() > 256; }

  void require_bytes(const Image& image) const {
    const int64_t values = image.height * image.width * channels_;
    int64_t needed = values * (is_wide() ? 2 : 1);
    if (is_plain_) needed = is_bitmap_ ? values : 2 * values - 1;  // digits and the spaces between them
    if (is_bitmap_ && !is_plain_) needed = image.height * ((image.width + 7) / 8);
    const auto left = static_cast<int64_t>(bytes_.size() - at_);
    if (left < needed) {
      refuse("expected " + std::to_string(needed) + " bytes of pixels, got " + std::to_string(left));
    }
  }

  uint8_t level() {
    int64_t value = 0;
    if (is_plain_) {
      value = number();
      if (value >= static_cast<int64_t>(levels_.size())) refuse("the value " + std::to_string(value) + " is too large");
    } else {
      value = bytes_[at_++];
      if (is_wide()) value = value << 8 | bytes_[at_++];
    }
    return levels_[std::min(static_cast<size_t>(value), levels_.size() - 1)];
  }

  void read_values(Image& image) {
    for (size_t i = 0; i < image.pixels.size(); i += 3) {
      for (size_t c = 0; c < 3; ++c) {
        image.pixels[i + c] = c > 0 && channels_ == 1 ? image.pixels[i] : level();
      }
    }
  }

  void read_plain_bits(Image& image) {
    for (size_t i = 0; i < image.pixels.size(); i += 3) {
      skip_space();
      if (at_ == bytes_.size()) refuse("it is truncated");
      const uint8_t bit = bytes_[at_++];
      if (bit != '0' && bit != '1') refuse("expected 0 or 1 at byte " + std::to_string(at_ - 1));
      std::memset(&image.pixels[i], bit == '0' ? 255 : 0, 3);
    }
  }

  void read_bits(Image& image) {
    const int64_t row_bytes = (image.width + 7) / 8;
    uint8_t* pixel = image.pixels.data();
    for (int64_t y = 0; y < image.height; ++y) {
      const uint8_t* row = &bytes_[at_ + static_cast<size_t>(y * row_bytes)];
      for (int64_t x = 0; x < image.width; ++x, pixel += 3) {
        std::memset(pixel, (row[x / 8] >> (7 - x % 8) & 1) != 0 ? 0 : 255, 3);
      }
    }
  }

  const std::vector<uint8_t>& bytes_;
  const std::filesystem::path& path_;
  size_t at_ = 2;  // after P and the digit
  bool is_plain_ = false;
  bool is_bitmap_ = false;
  int channels_ = 1;
  std::vector<uint8_t> levels_;  // the 8-bit level of each value
};

}  // namespace

Image decode_pnm(const std::vector<uint8_t>& bytes, const std::filesystem::path& path, const DecodeOptions& options) {
  return Pnm(bytes, path).decode(options);
}

}  // namespace ddp

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <ddprun/data/byte_source.h>

#include "data/formats/limits.h"
#include "data/formats/picture_formats.h"

namespace ddp {
namespace {

enum class BmpCompression : uint32_t { kNone = 0, kRle8 = 1, kRle4 = 2, kBitFields = 3 };

struct BmpHeader {
  int64_t height = 0;
  int64_t width = 0;
  bool is_top_down = false;
  int bits = 0;  ///< per pixel: 1, 4, 8 (indices into the palette), 16, 24 or 32
  BmpCompression compression{};
  std::array<uint32_t, 3> masks{};                    ///< of red, green and blue; for 16 and 32 bits
  std::array<std::array<uint8_t, 3>, 256> palette{};  ///< red, green, blue; black for missing entries
  size_t pixels_at = 0;                               ///< the position in the file
};

constexpr size_t kFileHeaderBytes = 14;
constexpr uint32_t kOldHeaderBytes = 12;

/// Reads the little-endian numbers of the file.
class Fields {
 public:
  Fields(const std::vector<uint8_t>& bytes, const std::filesystem::path& path) : bytes_(bytes), path_(path) {}

  [[noreturn]] void refuse(const std::string& why) const { throw DataError(path_, "not a valid BMP file: " + why); }

  void require(size_t at, size_t count) const {
    if (at > bytes_.size() || count > bytes_.size() - at) refuse("its header is truncated");
  }
  uint32_t u16(size_t at) const {
    require(at, 2);
    return bytes_[at] | static_cast<uint32_t>(bytes_[at + 1]) << 8;
  }
  uint32_t u32(size_t at) const { return u16(at) | u16(at + 2) << 16; }

 private:
  const std::vector<uint8_t>& bytes_;
  const std::filesystem::path& path_;
};

void check_kind(const Fields& fields, const BmpHeader& header) {
  const int bits = header.bits;
  if (bits != 1 && bits != 4 && bits != 8 && bits != 16 && bits != 24 && bits != 32) {
    fields.refuse("expected 1, 4, 8, 16, 24 or 32 bits for a pixel, got " + std::to_string(bits));
  }
  const auto compression = header.compression;
  const bool fits = compression == BmpCompression::kNone || (compression == BmpCompression::kRle8 && bits == 8) ||
                    (compression == BmpCompression::kRle4 && bits == 4) ||
                    (compression == BmpCompression::kBitFields && bits >= 16);
  if (!fits) {
    fields.refuse("compression " + std::to_string(static_cast<uint32_t>(compression)) + " with " +
                  std::to_string(bits) + " bits for a pixel is not known");
  }
}

/// Whether the bits of the mask of one colour are adjacent.
bool is_mask(uint32_t mask) {
  return mask != 0 && std::has_single_bit((uint64_t{mask} >> std::countr_zero(mask)) + 1);
}

/// Reads the masks after a header of 40 bytes, or at the same position within a longer header.
void read_masks(const Fields& fields, BmpHeader& header) {
  header.masks = {0x7C00, 0x3E0, 0x1F};
  if (header.bits == 32) header.masks = {0xFF0000, 0xFF00, 0xFF};
  if (header.compression != BmpCompression::kBitFields || header.bits == 24) return;
  const std::array<uint32_t, 3> masks = {fields.u32(54), fields.u32(58), fields.u32(62)};
  if (masks == std::array<uint32_t, 3>{} && header.bits == 32) return;
  if (!std::all_of(masks.begin(), masks.end(), is_mask)) fields.refuse("its colour masks are damaged");
  header.masks = masks;
}

/// Reads the palette, which begins at `at`. Returns its end.
size_t read_palette(const Fields& fields, const std::vector<uint8_t>& bytes, size_t at, uint32_t colors,
                    size_t entry_bytes, BmpHeader& header) {
  if (colors == 0) colors = 1U << header.bits;
  if (colors > 65536) fields.refuse("its palette has " + std::to_string(colors) + " colours, expected at most 65536");
  for (uint32_t i = 0; i < std::min(colors, 1U << header.bits); ++i) {
    const size_t entry = at + i * entry_bytes;
    fields.require(entry, 3);
    header.palette[i] = {bytes[entry + 2], bytes[entry + 1], bytes[entry]};
  }
  return at + colors * entry_bytes;
}

// Reads the headers of Windows (40 to 124 bytes) and OS/2 (12 and 64 bytes). Throws DataError if the header is damaged,
// truncated or of an unknown kind.
BmpHeader read_bmp_header(const std::vector<uint8_t>& bytes, const std::filesystem::path& path) {
  const Fields fields(bytes, path);
  BmpHeader header{.pixels_at = fields.u32(10)};
  const uint32_t size = fields.u32(kFileHeaderBytes);
  uint32_t colors = 0;
  if (size == kOldHeaderBytes) {
    header.width = fields.u16(18);
    header.height = fields.u16(20);
    header.bits = static_cast<int>(fields.u16(24));
  } else if (size == 40 || size == 52 || size == 56 || size == 64 || size == 108 || size == 124) {
    header.width = static_cast<int32_t>(fields.u32(18));
    header.height = static_cast<int32_t>(fields.u32(22));
    header.is_top_down = header.height < 0;
    if (header.is_top_down) header.height = -header.height;
    header.bits = static_cast<int>(fields.u16(28));
    header.compression = static_cast<BmpCompression>(fields.u32(30));
    colors = fields.u32(46);
  } else {
    fields.refuse("a header of " + std::to_string(size) + " bytes is not known");
  }
  check_kind(fields, header);
  size_t end = kFileHeaderBytes + size;
  read_masks(fields, header);
  if (size == 40 && header.compression == BmpCompression::kBitFields) end += 12;
  if (header.bits <= 8) {
    const size_t palette_end = read_palette(fields, bytes, end, colors, size == kOldHeaderBytes ? 3 : 4, header);
    // Some programs do not include the palette in the position of the pixels.
    if (header.pixels_at == end) header.pixels_at = palette_end;
    end = palette_end;
  }
  if (header.pixels_at == 0) header.pixels_at = end;
  return header;
}

/// Decodes the pixels of a BMP file after its header. Rows are counted in the order of the file.
class Bmp {
 public:
  Bmp(const std::vector<uint8_t>& bytes, const std::filesystem::path& path, const BmpHeader& header)
      : bytes_(bytes), path_(path), header_(header), at_(header.pixels_at) {
    if (at_ > bytes_.size()) refuse("the pixels would begin after its end");
  }

  Image decode() {
    const bool is_packed = header_.compression == BmpCompression::kRle8 || header_.compression == BmpCompression::kRle4;
    if (is_packed) {
      const size_t begin = at_;
      unpack();  // a pass without output that checks that the file is complete before memory is allocated
      at_ = begin;
      x_ = y_ = 0;
    } else {
      require_rows();
    }
    check_unpacked_size(path_, header_.height * header_.width * 3, static_cast<int64_t>(bytes_.size()));
    image_ = {.height = header_.height, .width = header_.width};
    image_.pixels.resize(static_cast<size_t>(header_.height * header_.width * 3));
    if (is_packed) {
      fill();
      unpack();
    } else {
      for (int64_t y = 0; y < header_.height; ++y) read_row(y);
    }
    return std::move(image_);
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const { throw DataError(path_, "not a valid BMP file: " + why); }

  int64_t row_bytes() const { return (header_.width * header_.bits + 31) / 32 * 4; }

  /// Throws if rows are missing. The last row may lack its padding to a multiple of four bytes.
  void require_rows() const {
    const int64_t needed = row_bytes() * (header_.height - 1) + (header_.width * header_.bits + 7) / 8;
    const auto left = static_cast<int64_t>(bytes_.size() - at_);
    if (left < needed) {
      refuse("expected " + std::to_string(needed) + " bytes of pixels, got " + std::to_string(left));
    }
  }

  uint8_t* pixel(int64_t x, int64_t y) {
    const int64_t row = header_.is_top_down ? y : header_.height - 1 - y;
    return &image_.pixels[static_cast<size_t>((row * header_.width + x) * 3)];
  }

  void put_index(int64_t x, int64_t y, uint32_t index) { std::copy_n(header_.palette[index].begin(), 3, pixel(x, y)); }

  /// Scales each colour to 8 bits and truncates it, as Pillow does.
  void put_masked(uint8_t* rgb, uint32_t value) const {
    for (size_t c = 0; c < 3; ++c) {
      const uint32_t mask = header_.masks[c];
      const int shift = std::countr_zero(mask);
      rgb[c] = static_cast<uint8_t>(uint64_t{(value & mask) >> shift} * 255 / (mask >> shift));
    }
  }

  void read_row(int64_t y) {
    const uint8_t* row = &bytes_[at_ + static_cast<size_t>(y * row_bytes())];
    const int bits = header_.bits;
    uint8_t* rgb = pixel(0, y);
    for (int64_t x = 0; x < header_.width; ++x, rgb += 3) {
      if (bits <= 8) {
        const int64_t bit = x * bits;
        put_index(x, y, row[bit / 8] >> (8 - bits - bit % 8) & ((1U << bits) - 1));
      } else if (bits == 24) {
        std::reverse_copy(&row[3 * x], &row[3 * x] + 3, rgb);
      } else {
        uint32_t value = 0;
        for (int byte = bits / 8 - 1; byte >= 0; --byte) value = value << 8 | row[x * bits / 8 + byte];
        put_masked(rgb, value);
      }
    }
  }

  uint8_t byte() {
    if (at_ == bytes_.size()) refuse("its pixels are truncated");
    return bytes_[at_++];
  }

  /// Pixels that no command sets have the first colour of the palette.
  void fill() {
    for (size_t i = 0; i < image_.pixels.size(); i += 3) std::copy_n(header_.palette[0].begin(), 3, &image_.pixels[i]);
  }

  /// Decodes run-length encoding: pairs of a count and the value to repeat, or of 0 and a command. Stores nothing if
  /// there is no picture yet.
  void unpack() {
    while (y_ < header_.height) {
      // Some files lack the end command after the last row, so a full last row ends the picture.
      const bool is_full = y_ == header_.height - 1 && x_ >= header_.width;
      if (is_full && at_ == bytes_.size()) return;
      const uint8_t count = byte();
      const uint8_t value = byte();
      if (count > 0) {
        for (int i = 0; i < count; ++i) put_next(i, value);
      } else if (value == 0) {
        x_ = 0;
        ++y_;
      } else if (value == 1) {
        return;
      } else if (value == 2) {
        x_ += byte();
        y_ += byte();
      } else {
        copy(value);
      }
    }
  }

  bool is_rle4() const { return header_.compression == BmpCompression::kRle4; }

  /// `pair` is one index, or two 4-bit indices that alternate.
  void put_next(int turn, uint8_t pair) {
    const uint32_t index = is_rle4() ? (turn % 2 == 0 ? pair >> 4 : pair & 15) : pair;
    if (x_ < header_.width && !image_.pixels.empty()) put_index(x_, y_, index);
    ++x_;
  }

  void copy(int count) {
    const int byte_count = is_rle4() ? (count + 1) / 2 : count;
    uint8_t pair = 0;
    for (int i = 0; i < count; ++i) {
      if (!is_rle4() || i % 2 == 0) pair = byte();
      put_next(i, pair);
    }
    if (byte_count % 2 != 0 && at_ < bytes_.size()) ++at_;  // padded to a multiple of two bytes
  }

  const std::vector<uint8_t>& bytes_;
  const std::filesystem::path& path_;
  const BmpHeader& header_;
  size_t at_;
  Image image_;
  int64_t x_ = 0;
  int64_t y_ = 0;
};

}  // namespace

Image decode_bmp(const std::vector<uint8_t>& bytes, const std::filesystem::path& path, const DecodeOptions& options) {
  const BmpHeader header = read_bmp_header(bytes, path);
  check_image_size(path, header.height, header.width, options);
  return Bmp(bytes, path, header).decode();
}

}  // namespace ddp

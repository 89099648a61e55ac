#include "data/formats/bmp_header.h"

#include <algorithm>
#include <bit>
#include <string>

#include <ddprun/data/byte_source.h>

namespace ddp {
namespace {

constexpr size_t kFileHeaderBytes = 14;
constexpr uint32_t kOldHeaderBytes = 12;

/// Numbers of the file, lowest byte first.
class Fields {
 public:
  Fields(const std::vector<uint8_t>& bytes, const std::filesystem::path& path) : bytes_(bytes), path_(path) {}

  [[noreturn]] void refuse(const std::string& why) const { throw DataError(path_, "not a valid BMP file: " + why); }

  void require(size_t at, size_t count) const {
    if (at > bytes_.size() || count > bytes_.size() - at) refuse("its header is cut short");
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

/// The bits of one colour stand together.
bool is_mask(uint32_t mask) {
  return mask != 0 && std::has_single_bit((uint64_t{mask} >> std::countr_zero(mask)) + 1);
}

/// Behind a header of 40 bytes, or at the same place inside a longer one.
void read_masks(const Fields& fields, BmpHeader& header) {
  header.masks = {0x7C00, 0x3E0, 0x1F};
  if (header.bits == 32) header.masks = {0xFF0000, 0xFF00, 0xFF};
  if (header.compression != BmpCompression::kBitFields || header.bits == 24) return;
  const std::array<uint32_t, 3> masks = {fields.u32(54), fields.u32(58), fields.u32(62)};
  if (masks == std::array<uint32_t, 3>{} && header.bits == 32) return;
  if (!std::all_of(masks.begin(), masks.end(), is_mask)) fields.refuse("its colour masks are damaged");
  header.masks = masks;
}

/// `at` is where the palette begins; returns where it ends.
size_t read_palette(const Fields& fields, const std::vector<uint8_t>& bytes, size_t at, uint32_t colors,
                    size_t entry_bytes, BmpHeader& header) {
  if (colors == 0) colors = 1U << header.bits;
  if (colors > 65536) fields.refuse("a palette of " + std::to_string(colors) + " colours");
  for (uint32_t i = 0; i < std::min(colors, 1U << header.bits); ++i) {
    const size_t entry = at + i * entry_bytes;
    fields.require(entry, 3);
    header.palette[i] = {bytes[entry + 2], bytes[entry + 1], bytes[entry]};
  }
  return at + colors * entry_bytes;
}

}  // namespace

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
    // Some programs forget the palette when they say where the pixels are.
    if (header.pixels_at == end) header.pixels_at = palette_end;
    end = palette_end;
  }
  if (header.pixels_at == 0) header.pixels_at = end;
  return header;
}

}  // namespace ddp

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <string>

#include "data/formats/limits.h"
#include "data/formats/picture_formats.h"
#include "data/formats/raster.h"
#include "data/formats/tiff_file.h"

namespace ddp {
namespace {

constexpr int kMaxPackedBits = 16;  // samples up to this size may be packed without gaps, with any number of bits

/// The bytes of a sample in memory; 0 for kinds that cannot be read.
int64_t sample_bytes(const TiffLayout& layout) {
  const int bits = layout.bits;
  const bool is_wide = bits == 32 || bits == 64;
  switch (layout.sample_format) {
    case SAMPLEFORMAT_VOID:
    case SAMPLEFORMAT_UINT:
      if (bits >= 1 && bits <= kMaxPackedBits) return bits <= 8 ? 1 : 2;
      return is_wide ? bits / 8 : 0;
    case SAMPLEFORMAT_INT:
      return bits == 8 || bits == 16 || is_wide ? bits / 8 : 0;
    case SAMPLEFORMAT_IEEEFP:
      if (bits == 16) return 4;
      return is_wide ? bits / 8 : 0;
    default:
      return 0;
  }
}

SampleKind kind_of(const TiffLayout& layout) {
  if (layout.sample_format == SAMPLEFORMAT_INT) return SampleKind::kSigned;
  return layout.sample_format == SAMPLEFORMAT_IEEEFP ? SampleKind::kFloat : SampleKind::kUnsigned;
}

/// Unpacks adjacent samples of a row with at most 16 bits each, highest bit first.
template <typename Sample>
void unpack_bits(const uint8_t* samples, int bits, int64_t count, uint8_t* out) {
  const uint32_t mask = (1U << bits) - 1;
  const auto put = [&](int64_t i, const uint8_t* three) {
    const uint32_t window = uint32_t{three[0]} << 16 | uint32_t{three[1]} << 8 | three[2];
    const auto value = static_cast<Sample>(window >> (24 - bits - i * bits % 8) & mask);
    std::memcpy(out + i * static_cast<int64_t>(sizeof value), &value, sizeof value);
  };
  const int64_t bytes = (count * bits + 7) / 8;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t first = i * bits / 8;
    if (first + 3 <= bytes) {
      put(i, samples + first);
    } else {
      std::array<uint8_t, 3> last{};
      std::copy(samples + first, samples + bytes, last.begin());
      put(i, last.data());
    }
  }
}

float from_half(uint16_t half) {
  const uint32_t sign = uint32_t{half & 0x8000U} << 16;
  const uint32_t exponent = half >> 10 & 0x1FU;
  const uint32_t fraction = half & 0x3FFU;
  constexpr float kSubnormalUnit = 0x1p-24F;
  if (exponent == 0)
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(static_cast<float>(fraction) * kSubnormalUnit));
  const uint32_t wide = exponent == 0x1F ? 0xFFU : exponent + 112;
  return std::bit_cast<float>(sign | wide << 23 | fraction << 13);
}

/// Converts `count` samples of a row to the format of the raster.
void unpack_samples(const TiffLayout& layout, const uint8_t* samples, int64_t count, uint8_t* out) {
  const int bits = layout.bits;
  if (layout.sample_format == SAMPLEFORMAT_IEEEFP && bits == 16) {
    for (int64_t i = 0; i < count; ++i) {
      uint16_t half = 0;
      std::memcpy(&half, samples + 2 * i, sizeof half);
      const float value = from_half(half);
      std::memcpy(out + 4 * i, &value, sizeof value);
    }
  } else if (bits % 8 == 0) {
    std::memcpy(out, samples, static_cast<size_t>(count * bits / 8));
  } else if (bits < 8) {
    unpack_bits<uint8_t>(samples, bits, count, out);
  } else {
    unpack_bits<uint16_t>(samples, bits, count, out);
  }
}

}  // namespace

Raster decode_tiff_raster(const std::vector<uint8_t>& bytes, const std::filesystem::path& path,
                          const DecodeOptions& options, const RasterMemory& memory) {
  TiffFile file(bytes, path);
  const TiffLayout layout = file.layout();
  check_image_size(path, layout.height, layout.width, options);
  Raster raster{.height = layout.height,
                .width = layout.width,
                .channels = layout.samples,
                .kind = kind_of(layout),
                .sample_bytes = sample_bytes(layout)};
  if (raster.sample_bytes == 0 || layout.samples < 1 || layout.photometric == PHOTOMETRIC_YCBCR) {
    file.refuse("expected whole numbers of 1 to 16, 32 or 64 bits or floats of 16, 32 or 64, and no YCbCr, got " +
                std::to_string(layout.samples) + " samples of " + std::to_string(layout.bits) +
                " bits, sample format " + std::to_string(layout.sample_format) + ", photometric interpretation " +
                std::to_string(layout.photometric) + ": convert it");
  }
  check_unpacked_size(path, raster.bytes(), file.file_bytes());
  const int64_t together = layout.is_separate ? 1 : layout.samples;
  uint8_t* const samples = memory(raster);
  // If pixels have several samples, they are unpacked in groups; each group of eight samples begins at a byte boundary.
  const int64_t at_once = std::max<int64_t>(8, (int64_t{1} << 16) / together / 8 * 8);
  std::vector<uint8_t> unpacked(
      together == 1 ? 0 : static_cast<size_t>(std::min(at_once, layout.width) * together * raster.sample_bytes));
  file.read_rows(layout, layout.samples, [&](const TiffRow& row) {
    uint8_t* out = samples + ((row.plane * layout.height + row.y) * layout.width + row.x) * raster.sample_bytes;
    if (together == 1) return unpack_samples(layout, row.samples, row.columns, out);
    for (int64_t x = 0; x < row.columns; x += at_once) {
      const int64_t count = std::min(at_once, row.columns - x);
      unpack_samples(layout, row.samples + x * together * layout.bits / 8, count * together, unpacked.data());
      for (int64_t c = 0; c < together; ++c) {
        copy_samples(unpacked.data() + c * raster.sample_bytes, together,
                     out + (c * layout.height * layout.width + x) * raster.sample_bytes, 1, count, raster.sample_bytes);
      }
    }
  });
  return raster;
}

}  // namespace ddp

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>

#include "data/formats/limits.h"
#include "data/formats/picture_formats.h"
#include "data/formats/raster.h"
#include "data/formats/tiff_file.h"

namespace ddp {
namespace {

constexpr int kMostPackedBits = 16;  // narrower samples may be of any number of bits, without gaps between them

/// Bytes of a sample in memory; 0 for kinds that are not read.
int64_t sample_bytes(const TiffLayout& layout) {
  const int bits = layout.bits;
  const bool is_wide = bits == 32 || bits == 64;
  switch (layout.sample_format) {
    case SAMPLEFORMAT_VOID:
    case SAMPLEFORMAT_UINT:
      if (bits >= 1 && bits <= kMostPackedBits) return bits <= 8 ? 1 : 2;
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

/// Sample `index` of those that follow each other with so many bits, the highest one first.
uint16_t packed_sample(const uint8_t* samples, int64_t index, int bits) {
  uint32_t value = 0;
  const int64_t first = index * bits;
  for (int64_t bit = first; bit < first + bits;) {
    const int64_t taken = std::min<int64_t>(8 - bit % 8, first + bits - bit);
    const int shift = static_cast<int>(8 - bit % 8 - taken);
    value = value << taken | (samples[bit / 8] >> shift & ((1U << taken) - 1));
    bit += taken;
  }
  return static_cast<uint16_t>(value);
}

float from_half(uint16_t half) {
  const uint32_t sign = uint32_t{half & 0x8000U} << 16;
  const uint32_t exponent = half >> 10 & 0x1FU;
  const uint32_t fraction = half & 0x3FFU;
  constexpr float kSmallest = 0x1p-24F;
  if (exponent == 0)
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(static_cast<float>(fraction) * kSmallest));
  const uint32_t wide = exponent == 0x1F ? 0xFFU : exponent + 112;
  return std::bit_cast<float>(sign | wide << 23 | fraction << 13);
}

/// `count` samples of a row as the raster has them.
void copy_samples(const TiffLayout& layout, const uint8_t* samples, int64_t count, uint8_t* out) {
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
    for (int64_t i = 0; i < count; ++i) out[i] = static_cast<uint8_t>(packed_sample(samples, i, bits));
  } else {
    for (int64_t i = 0; i < count; ++i) {
      const uint16_t value = packed_sample(samples, i, bits);
      std::memcpy(out + 2 * i, &value, sizeof value);
    }
  }
}

}  // namespace

Raster decode_tiff_raster(const std::vector<uint8_t>& bytes, const std::filesystem::path& path,
                          const DecodeOptions& options) {
  TiffFile file(bytes, path);
  const TiffLayout layout = file.layout();
  check_image_size(path, layout.height, layout.width, options);
  Raster raster{.height = layout.height,
                .width = layout.width,
                .channels = layout.samples,
                .kind = kind_of(layout),
                .sample_bytes = sample_bytes(layout),
                .is_planar = layout.is_separate};
  if (raster.sample_bytes == 0 || layout.samples < 1 || layout.photometric == PHOTOMETRIC_YCBCR) {
    file.refuse("expected whole numbers of 1 to 16, 32 or 64 bits or floats of 16, 32 or 64, and no YCbCr, got " +
                std::to_string(layout.samples) + " samples of " + std::to_string(layout.bits) +
                " bits, sample format " + std::to_string(layout.sample_format) + ", photometric interpretation " +
                std::to_string(layout.photometric) + ": convert it");
  }
  const int64_t pixels = layout.height * layout.width;
  check_unpacked_size(path, pixels * layout.samples * raster.sample_bytes, file.file_bytes());
  const int64_t together = layout.is_separate ? 1 : layout.samples;
  const int64_t row_bytes = layout.width * together * raster.sample_bytes;
  raster.bytes.reserve(static_cast<size_t>(pixels * layout.samples * raster.sample_bytes));
  file.read_rows(layout, layout.samples, [&](const TiffRow& row) {
    const int64_t begin = (row.plane * layout.height + row.y) * row_bytes;
    const auto end = static_cast<size_t>(begin + row_bytes);
    if (raster.bytes.size() < end) raster.bytes.resize(end);  // memory is used as rows come
    copy_samples(layout, row.samples, row.columns * together,
                 raster.bytes.data() + begin + row.x * together * raster.sample_bytes);
  });
  return raster;
}

}  // namespace ddp

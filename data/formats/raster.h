// Pictures whose samples are kept as they are in the file: 16 bits, signed, floats, any number of channels. No
// LibTorch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include <ddprun/data/image.h>

namespace ddp {

/// What a sample is.
enum class SampleKind { kUnsigned, kSigned, kFloat };

/// Samples in this machine's byte order, (height, width, channels), or (channels, height, width) where `is_planar`.
struct Raster {
  int64_t height = 0;
  int64_t width = 0;
  int64_t channels = 1;
  SampleKind kind = SampleKind::kUnsigned;
  int64_t sample_bytes = 1;  ///< 1, 2, 4 or 8
  bool is_planar = false;
  std::vector<uint8_t> bytes{};
};

/// See load_raster(). Throws DataError.
Raster decode_raster(const std::vector<uint8_t>& bytes, const std::filesystem::path& path,
                     const DecodeOptions& options);

Raster decode_png_raster(const std::vector<uint8_t>& bytes, const std::filesystem::path& path,
                         const DecodeOptions& options);
Raster decode_tiff_raster(const std::vector<uint8_t>& bytes, const std::filesystem::path& path,
                          const DecodeOptions& options);

}  // namespace ddp

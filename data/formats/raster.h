// Pictures whose samples are kept as they are stored in the file: 16 bits, signed, floats, any number of channels. Does
// not use LibTorch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <vector>

#include <ddprun/data/image.h>

namespace ddp {

/// The type of a sample.
enum class SampleKind { kUnsigned, kSigned, kFloat };

/// The samples of a picture, in the byte order of this machine and the order (channels, height, width).
struct Raster {
  int64_t height = 0;
  int64_t width = 0;
  int64_t channels = 1;
  SampleKind kind = SampleKind::kUnsigned;
  int64_t sample_bytes = 1;  ///< 1, 2, 4 or 8

  int64_t bytes() const { return height * width * channels * sample_bytes; }
};

/// Allocates memory for all samples. Called once, when their number is known. If the file turns out to be truncated,
/// the remaining memory has not been touched.
using RasterMemory = std::function<uint8_t*(const Raster& raster)>;

/// See load_raster(). Throws DataError.
Raster decode_raster(const std::vector<uint8_t>& bytes, const std::filesystem::path& path, const DecodeOptions& options,
                     const RasterMemory& memory);

Raster decode_png_raster(const std::vector<uint8_t>& bytes, const std::filesystem::path& path,
                         const DecodeOptions& options, const RasterMemory& memory);
Raster decode_tiff_raster(const std::vector<uint8_t>& bytes, const std::filesystem::path& path,
                          const DecodeOptions& options, const RasterMemory& memory);

/// Copies `count` samples of `bytes` bytes each (1, 2, 4 or 8). The samples are `from_step` samples apart in the source
/// and `to_step` samples apart in the copy.
void copy_samples(const uint8_t* from, int64_t from_step, uint8_t* to, int64_t to_step, int64_t count, int64_t bytes);

}  // namespace ddp

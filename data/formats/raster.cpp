#include "data/formats/raster.h"

#include <cstring>

#include <ddprun/data/byte_source.h>

#include "data/formats/image_format.h"
#include "data/formats/limits.h"

namespace ddp {
namespace {

template <int kBytes>
void copy_strided(const uint8_t* from, int64_t from_step, uint8_t* to, int64_t to_step, int64_t count) {
  for (int64_t i = 0; i < count; ++i) std::memcpy(to + i * to_step * kBytes, from + i * from_step * kBytes, kBytes);
}

}  // namespace

void copy_samples(const uint8_t* from, int64_t from_step, uint8_t* to, int64_t to_step, int64_t count, int64_t bytes) {
  if (from_step == 1 && to_step == 1) {
    std::memcpy(to, from, static_cast<size_t>(count * bytes));
  } else if (bytes == 1) {
    copy_strided<1>(from, from_step, to, to_step, count);
  } else if (bytes == 2) {
    copy_strided<2>(from, from_step, to, to_step, count);
  } else if (bytes == 4) {
    copy_strided<4>(from, from_step, to, to_step, count);
  } else {
    copy_strided<8>(from, from_step, to, to_step, count);
  }
}

Raster decode_raster(const std::vector<uint8_t>& bytes, const std::filesystem::path& path, const DecodeOptions& options,
                     const RasterMemory& memory) {
  return with_data_errors(path, [&]() -> Raster {
    const ImageFormat format = image_format(bytes);
    if (format == ImageFormat::kPng) return decode_png_raster(bytes, path, options, memory);
#ifdef DDPRUN_HAS_TIFF
    if (format == ImageFormat::kTiff) return decode_tiff_raster(bytes, path, options, memory);
#endif
    if (format == ImageFormat::kTiff) throw DataError(path, "a TIFF file, but " + reading_advice(format));
    throw DataError(path, "expected a PNG or TIFF file, whose samples can be read as they are, got " +
                              (format == ImageFormat::kUnknown ? "another format" : format_name(format)));
  });
}

}  // namespace ddp

#include "data/formats/raster.h"

#include <ddprun/data/byte_source.h>

#include "data/formats/image_format.h"
#include "data/formats/limits.h"

namespace ddp {

Raster decode_raster(const std::vector<uint8_t>& bytes, const std::filesystem::path& path,
                     const DecodeOptions& options) {
  return with_data_errors(path, [&]() -> Raster {
    const ImageFormat format = image_format(bytes);
    if (format == ImageFormat::kPng) return decode_png_raster(bytes, path, options);
#ifdef DDPRUN_HAS_TIFF
    if (format == ImageFormat::kTiff) return decode_tiff_raster(bytes, path, options);
#endif
    if (format == ImageFormat::kTiff) throw DataError(path, "a TIFF file, but " + how_to_read(format));
    throw DataError(path, "expected a PNG or TIFF file, whose samples can be read as they are, got " +
                              (format == ImageFormat::kUnknown ? "another format" : format_name(format)));
  });
}

}  // namespace ddp

#include "ddprun/data/image.h"

#include <string>

#include <ddprun/data/byte_source.h>
#include <ddprun/data/error.h>
#include <ddprun/data/image_format.h>

#include "data/formats/decoders.h"

namespace ddp {
namespace {

constexpr uint64_t kMostFileBytes = uint64_t{1} << 32;

using Decode = Image (*)(const std::vector<uint8_t>&, const std::filesystem::path&, const DecodeOptions&);

/// Null for a format that this build does not read.
Decode decoder_of(ImageFormat format) {
  switch (format) {
    case ImageFormat::kJpeg:
      return decode_jpeg;
    case ImageFormat::kPng:
      return decode_png;
    case ImageFormat::kBmp:
      return decode_bmp;
    case ImageFormat::kPnm:
      return decode_pnm;
#ifdef DDPRUN_HAS_TIFF
    case ImageFormat::kTiff:
      return decode_tiff;
#endif
#ifdef DDPRUN_HAS_WEBP
    case ImageFormat::kWebP:
      return decode_webp;
#endif
    default:
      return nullptr;
  }
}

}  // namespace

void check_image_size(const std::filesystem::path& path, int64_t height, int64_t width, const DecodeOptions& options) {
  if (height >= 1 && width >= 1 && height <= options.most_pixels / width) return;
  throw DataError(path, "expected 1 to " + std::to_string(options.most_pixels) + " pixels, its header says " +
                            std::to_string(width) + "x" + std::to_string(height));
}

bool can_read(ImageFormat format) {
  return decoder_of(format) != nullptr;
}

Image decode_image(const std::vector<uint8_t>& bytes, const std::filesystem::path& path, const DecodeOptions& options) {
  const ImageFormat format = image_format(bytes);
  if (const Decode decode = decoder_of(format)) return decode(bytes, path, options);
  if (format == ImageFormat::kTiff) throw DataError(path, "a TIFF file, but " + how_to_read(format));
  if (format == ImageFormat::kWebP) throw DataError(path, "a WebP file, but " + how_to_read(format));
  throw DataError(path, bytes.empty() ? "the file is empty"
                                      : "expected a JPEG, PNG, BMP, PPM, PGM, TIFF or WebP file, got another format");
}

Image read_image(const std::filesystem::path& path, const DecodeOptions& options) {
  const std::string content = read_small_file(path, kMostFileBytes);
  return decode_image(std::vector<uint8_t>(content.begin(), content.end()), path, options);
}

}  // namespace ddp

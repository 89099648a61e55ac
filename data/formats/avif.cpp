#include <avif/avif.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <string>

#include <ddprun/data/byte_source.h>

#include "data/formats/limits.h"
#include "data/formats/picture_formats.h"

namespace ddp {
namespace {

[[noreturn]] void refuse(const std::filesystem::path& path, avifResult result) {
  throw DataError(path, std::string("not a valid AVIF file: ") + avifResultToString(result));
}

/// The bytes of the planes before their conversion to RGB.
int64_t plane_bytes(const avifImage& picture) {
  avifPixelFormatInfo format{};
  avifGetPixelFormatInfo(picture.yuvFormat, &format);
  const int64_t pixels = int64_t{picture.width} * picture.height;
  const int64_t colors = format.monochrome != 0 ? 0 : 2 * pixels >> (format.chromaShiftX + format.chromaShiftY);
  return (pixels + colors) * (picture.depth > 8 ? 2 : 1);
}

}  // namespace

Image decode_avif(const std::vector<uint8_t>& bytes, const std::filesystem::path& path, const DecodeOptions& options) {
  const std::unique_ptr<avifDecoder, decltype(&avifDecoderDestroy)> decoder(avifDecoderCreate(), avifDecoderDestroy);
  if (decoder == nullptr) throw std::bad_alloc();
  decoder->maxThreads = 1;  // the loader already uses several worker threads
  decoder->ignoreExif = decoder->ignoreXMP = AVIF_TRUE;
  constexpr int64_t kMaxPixels = int64_t{16384} * 16384;  // the limit of libavif
  decoder->imageSizeLimit = static_cast<uint32_t>(std::clamp<int64_t>(options.most_pixels, 1, kMaxPixels));
  avifResult result = avifDecoderSetIOMemory(decoder.get(), bytes.data(), bytes.size());
  if (result == AVIF_RESULT_OK) result = avifDecoderParse(decoder.get());
  if (result != AVIF_RESULT_OK) refuse(path, result);
  const avifImage& picture = *decoder->image;
  Image image{.height = picture.height, .width = picture.width};
  check_image_size(path, image.height, image.width, options);
  const auto file_bytes = static_cast<int64_t>(bytes.size());
  check_unpacked_size(path, image.height * image.width * 3, file_bytes);
  check_working_memory(path, plane_bytes(picture), file_bytes, "the planes of the picture");
  result = avifDecoderNextImage(decoder.get());
  if (result != AVIF_RESULT_OK) refuse(path, result);
  image.pixels.resize(static_cast<size_t>(image.height * image.width * 3));
  avifRGBImage rgb;
  avifRGBImageSetDefaults(&rgb, decoder->image);
  rgb.format = AVIF_RGB_FORMAT_RGB;
  rgb.depth = 8;
  rgb.ignoreAlpha = AVIF_TRUE;
  rgb.rowBytes = static_cast<uint32_t>(image.width * 3);
  rgb.pixels = image.pixels.data();
  result = avifImageYUVToRGB(decoder->image, &rgb);
  if (result != AVIF_RESULT_OK) refuse(path, result);
  return image;
}

}  // namespace ddp

#include <webp/decode.h>
#include <webp/demux.h>

#include <cstring>
#include <memory>
#include <string>

#include <ddprun/data/error.h>

#include "data/formats/picture_formats.h"

namespace ddp {
namespace {

[[noreturn]] void refuse(const std::filesystem::path& path, const std::string& why) {
  throw DataError(path, "not a valid WebP file: " + why);
}

/// The colours where nothing is opaque count as well, as with Pillow's convert("RGB"): opacity is dropped, not blended.
void decode_still(const std::vector<uint8_t>& bytes, const std::filesystem::path& path, Image& image) {
  image.pixels.resize(static_cast<size_t>(image.height * image.width * 3));
  if (WebPDecodeRGBInto(bytes.data(), bytes.size(), image.pixels.data(), image.pixels.size(),
                        static_cast<int>(image.width * 3)) == nullptr) {
    refuse(path, "the picture is damaged or cut short");
  }
}

void decode_first_frame(const std::vector<uint8_t>& bytes, const std::filesystem::path& path, Image& image) {
  WebPAnimDecoderOptions how;
  if (WebPAnimDecoderOptionsInit(&how) == 0) refuse(path, "libwebp is another version than its headers");
  how.color_mode = MODE_RGBA;
  const WebPData data{.bytes = bytes.data(), .size = bytes.size()};
  const std::unique_ptr<WebPAnimDecoder, decltype(&WebPAnimDecoderDelete)> decoder(WebPAnimDecoderNew(&data, &how),
                                                                                   WebPAnimDecoderDelete);
  uint8_t* canvas = nullptr;
  int milliseconds = 0;
  if (decoder == nullptr || WebPAnimDecoderGetNext(decoder.get(), &canvas, &milliseconds) == 0) {
    refuse(path, "its first frame is damaged or cut short");
  }
  image.pixels.resize(static_cast<size_t>(image.height * image.width * 3));
  uint8_t* rgb = image.pixels.data();
  for (int64_t i = 0; i < image.height * image.width; ++i, canvas += 4, rgb += 3) std::memcpy(rgb, canvas, 3);
}

}  // namespace

Image decode_webp(const std::vector<uint8_t>& bytes, const std::filesystem::path& path, const DecodeOptions& options) {
  WebPBitstreamFeatures features;
  if (WebPGetFeatures(bytes.data(), bytes.size(), &features) != VP8_STATUS_OK) {
    refuse(path, "its header is damaged or cut short");
  }
  Image image{.height = features.height, .width = features.width};
  check_image_size(path, image.height, image.width, options);
  if (features.has_animation != 0) {
    decode_first_frame(bytes, path, image);
  } else {
    decode_still(bytes, path, image);
  }
  return image;
}

}  // namespace ddp

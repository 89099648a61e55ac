#include <webp/decode.h>
#include <webp/demux.h>

#include <memory>
#include <string>
#include <utility>

#include <ddprun/data/byte_source.h>

#include "data/formats/limits.h"
#include "data/formats/picture_formats.h"
#include "data/formats/vp8l_groups.h"

namespace ddp {
namespace {

[[noreturn]] void refuse(const std::filesystem::path& path, const std::string& why) {
  throw DataError(path, "not a valid WebP file: " + why);
}

/// A still picture, or a frame of an animation.
struct WebPPart {
  WebPData data{};
  int64_t left = 0;
  int64_t top = 0;
  WebPBitstreamFeatures features{};
};

/// The memory that libwebp needs in addition to its output: all colours of a lossless picture, otherwise twice the
/// opacity.
int64_t working_bytes(const WebPBitstreamFeatures& features) {
  constexpr int kLossless = 2;
  const int64_t pixels = int64_t{features.width} * features.height;
  return features.format == kLossless ? 4 * pixels : features.has_alpha != 0 ? 2 * pixels : 0;
}

void check_groups(const std::filesystem::path& path, const WebPPart& part) {
  const Vp8lSize size{.width = part.features.width, .height = part.features.height};
  const int64_t groups = max_webp_groups(part.data.bytes, part.data.size, size);
  if (groups <= kMaxVp8lGroups) return;
  refuse(path, "it has " + std::to_string(groups) +
                   " groups of Huffman codes; encoders make at most 2600, this reader " + "accepts " +
                   std::to_string(kMaxVp8lGroups));
}

/// Whether the picture is complete. Decodes only its last pixels, so that no memory is needed for the others.
bool is_whole(const WebPPart& part) {
  WebPDecoderConfig how;
  if (WebPInitDecoderConfig(&how) == 0) return false;
  how.options.use_cropping = 1;
  how.options.crop_left = (part.features.width - 1) / 2 * 2;
  how.options.crop_top = (part.features.height - 1) / 2 * 2;
  how.options.crop_width = part.features.width - how.options.crop_left;
  how.options.crop_height = part.features.height - how.options.crop_top;
  how.output.colorspace = MODE_RGB;
  const bool is_whole = WebPDecode(part.data.bytes, part.data.size, &how) == VP8_STATUS_OK;
  WebPFreeDecBuffer(&how.output);
  return is_whole;
}

/// Decodes a part. As in Pillow's convert("RGB"), opacity is dropped, not blended, so that transparent pixels keep
/// their colours. Pixels outside of the part are black.
Image decode_part(WebPPart part, const std::filesystem::path& path, int64_t file_bytes, Image image,
                  const std::string& damage) {
  if (WebPGetFeatures(part.data.bytes, part.data.size, &part.features) != VP8_STATUS_OK) refuse(path, damage);
  check_working_memory(path, working_bytes(part.features), file_bytes, "the colours of all pixels");
  check_groups(path, part);
  if (part.left + part.features.width > image.width || part.top + part.features.height > image.height) {
    refuse(path, damage);
  }
  const int64_t bytes = image.height * image.width * 3;
  const int64_t unpacked = int64_t{part.features.width} * part.features.height * 3;
  const bool is_large = needs_check_pass(bytes, file_bytes);
  check_unpacked_size(path, unpacked, file_bytes, is_large ? 2 : 1);
  if (is_large && !is_whole(part)) refuse(path, damage);
  image.pixels.resize(static_cast<size_t>(bytes));
  const int64_t row_bytes = image.width * 3;
  const auto begin = static_cast<size_t>(part.top * row_bytes + part.left * 3);
  if (WebPDecodeRGBInto(part.data.bytes, part.data.size, image.pixels.data() + begin, image.pixels.size() - begin,
                        static_cast<int>(row_bytes)) == nullptr) {
    refuse(path, damage);
  }
  return image;
}

/// Decodes the first frame without the animation decoder of libwebp, which needs several canvases. The first frame is
/// drawn on an empty canvas.
Image decode_first_frame(const WebPData& data, const std::filesystem::path& path, Image image) {
  const std::string damage = "its first frame is damaged or truncated";
  const std::unique_ptr<WebPDemuxer, decltype(&WebPDemuxDelete)> demuxer(WebPDemux(&data), WebPDemuxDelete);
  WebPIterator frame{};
  if (demuxer == nullptr || WebPDemuxGetFrame(demuxer.get(), 1, &frame) == 0) refuse(path, damage);
  const WebPPart part{.data = frame.fragment, .left = frame.x_offset, .top = frame.y_offset};
  WebPDemuxReleaseIterator(&frame);
  return decode_part(part, path, static_cast<int64_t>(data.size), std::move(image), damage);
}

}  // namespace

Image decode_webp(const std::vector<uint8_t>& bytes, const std::filesystem::path& path, const DecodeOptions& options) {
  WebPBitstreamFeatures features;
  if (WebPGetFeatures(bytes.data(), bytes.size(), &features) != VP8_STATUS_OK) {
    refuse(path, "its header is damaged or truncated");
  }
  Image image{.height = features.height, .width = features.width};
  check_image_size(path, image.height, image.width, options);
  const WebPData data{.bytes = bytes.data(), .size = bytes.size()};
  if (features.has_animation != 0) return decode_first_frame(data, path, std::move(image));
  return decode_part({.data = data}, path, static_cast<int64_t>(bytes.size()), std::move(image),
                     "the picture is damaged or truncated");
}

}  // namespace ddp

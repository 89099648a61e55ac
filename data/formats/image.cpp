#include "ddprun/data/image.h"

#include <iterator>
#include <string>

#include <ddprun/data/byte_source.h>

#include "base/joined.h"
#include "data/formats/limits.h"
#include "data/formats/picture_formats.h"

namespace ddp {
namespace {

constexpr uint64_t kMaxFileBytes = uint64_t{1} << 32;
constexpr int64_t kMaxPictureSide = 1'000'000;  // libpng's limit, used for all formats: each row has a fixed cost

/// Returns all format names, such as "JPEG, PNG or GIF".
std::string all_formats() {
  const auto name = [](const PictureFormat& known) { return std::string(known.name); };
  return detail::joined(kPictureFormats, ", ", name, " or ");
}

}  // namespace

void check_image_size(const std::filesystem::path& path, int64_t height, int64_t width, const DecodeOptions& options) {
  if (height >= 1 && width >= 1 && height <= options.most_pixels / width) {
    if (height <= kMaxPictureSide && width <= kMaxPictureSide) return;
    throw DataError(path, "expected sides of at most " + std::to_string(kMaxPictureSide) +
                              " pixels, but its header says " + std::to_string(width) + "x" + std::to_string(height));
  }
  throw DataError(path, "expected 1 to " + std::to_string(options.most_pixels) + " pixels, but its header says " +
                            std::to_string(width) + "x" + std::to_string(height));
}

Image decode_image(const std::vector<uint8_t>& bytes, const std::filesystem::path& path, const DecodeOptions& options) {
  const ImageFormat format = image_format(bytes);
  for (const PictureFormat& known : kPictureFormats) {
    if (known.format != format) continue;
    if (known.decode != nullptr) return with_data_errors(path, [&] { return known.decode(bytes, path, options); });
    throw DataError(path, "a " + std::string(known.name) + " file, but " + reading_advice(format));
  }
  throw DataError(path,
                  bytes.empty() ? "the file is empty" : "expected a " + all_formats() + " file, got another format");
}

Image read_image(const std::filesystem::path& path, const DecodeOptions& options) {
  return with_data_errors(path,
                          [&] { return decode_image(read_small_file_bytes(path, kMaxFileBytes), path, options); });
}

}  // namespace ddp

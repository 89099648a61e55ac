#include "data/image.h"

#include <png.h>

#include <algorithm>
#include <array>
#include <string>

#include "data/byte_source.h"
#include "data/error.h"
#include "data/jpeg.h"

namespace ddp {
namespace {

constexpr uint64_t kMostFileBytes = uint64_t{1} << 32;

bool begins_with(const std::vector<uint8_t>& bytes, std::initializer_list<uint8_t> signature) {
  return bytes.size() >= signature.size() && std::equal(signature.begin(), signature.end(), bytes.begin());
}

/// Frees what libpng holds.
struct PngImage : png_image {
  PngImage() : png_image{} { version = PNG_IMAGE_VERSION; }
  ~PngImage() { png_image_free(this); }
  PngImage(const PngImage&) = delete;
  PngImage& operator=(const PngImage&) = delete;
};

[[noreturn]] void refuse_png(const std::filesystem::path& path, const PngImage& png) {
  throw DataError(path, std::string("not a valid PNG file: ") + png.message);
}

/// RGB of RGBA pixels.
std::vector<uint8_t> without_opacity(const std::vector<uint8_t>& pixels) {
  std::vector<uint8_t> rgb;
  rgb.reserve(pixels.size() / 4 * 3);
  for (size_t i = 0; i < pixels.size(); i += 4) rgb.insert(rgb.end(), &pixels[i], &pixels[i] + 3);
  return rgb;
}

Image decode_png(const std::vector<uint8_t>& bytes, const std::filesystem::path& path, const DecodeOptions& options) {
  PngImage png;
  if (png_image_begin_read_from_memory(&png, bytes.data(), bytes.size()) == 0) refuse_png(path, png);
  check_image_size(path, png.height, png.width, options);
  // Reading as RGB would blend with a background; the colours themselves are wanted, so opacity is read and dropped.
  const bool has_opacity = (png.format & PNG_FORMAT_FLAG_ALPHA) != 0;
  png.format = has_opacity ? PNG_FORMAT_RGBA : PNG_FORMAT_RGB;
  // Values as they are: no conversion between colour spaces.
  png.flags |= PNG_IMAGE_FLAG_16BIT_sRGB;
  Image image{.height = png.height, .width = png.width};
  std::vector<uint8_t> pixels(PNG_IMAGE_SIZE(png));
  if (png_image_finish_read(&png, nullptr, pixels.data(), 0, nullptr) == 0 || PNG_IMAGE_FAILED(png)) {
    refuse_png(path, png);
  }
  image.pixels = has_opacity ? without_opacity(pixels) : std::move(pixels);
  return image;
}

}  // namespace

void check_image_size(const std::filesystem::path& path, int64_t height, int64_t width, const DecodeOptions& options) {
  if (height >= 1 && width >= 1 && height <= options.most_pixels / width) return;
  throw DataError(path, "expected 1 to " + std::to_string(options.most_pixels) + " pixels, its header says " +
                            std::to_string(width) + "x" + std::to_string(height));
}

Image decode_image(const std::vector<uint8_t>& bytes, const std::filesystem::path& path, const DecodeOptions& options) {
  if (begins_with(bytes, {0xFF, 0xD8, 0xFF})) return decode_jpeg(bytes, path, options);
  if (begins_with(bytes, {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'})) return decode_png(bytes, path, options);
  throw DataError(path, bytes.empty() ? "the file is empty" : "expected a JPEG or PNG file, got another format");
}

Image read_image(const std::filesystem::path& path, const DecodeOptions& options) {
  const std::string content = read_small_file(path, kMostFileBytes);
  return decode_image(std::vector<uint8_t>(content.begin(), content.end()), path, options);
}

}  // namespace ddp

#include <png.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <stdexcept>

#include "ddprun/monitor/summary_values.h"

namespace ddp {
namespace {

/// libpng's simplified interface uses 32-bit sizes. With this limit, no product can overflow.
constexpr int64_t kMaxSide = 1 << 16;
constexpr int64_t kMaxPixels = int64_t{1} << 30;

uint8_t to_byte(uint8_t pixel) {
  return pixel;
}

uint8_t to_byte(float pixel) {
  if (!(pixel > 0.0F)) return 0;  // also true for NaN
  return static_cast<uint8_t>(std::min(pixel, 1.0F) * 255.0F);
}

template <typename Pixel>
void check(const ImagesView<Pixel>& images, int64_t columns) {
  const std::string shape = std::to_string(images.count) + "x" + std::to_string(images.channels) + "x" +
                            std::to_string(images.height) + "x" + std::to_string(images.width);
  const auto within = [](int64_t value, int64_t most) { return value >= 1 && value <= most; };
  if (!within(images.channels, 4) || !within(images.height, kMaxSide) || !within(images.width, kMaxSide) ||
      !within(images.count, kMaxPixels / (images.height * images.width)) || columns < 1) {
    throw std::invalid_argument("Invalid images of shape " + shape +
                                ": expected count x channels x height x width, 1 to 4 channels, no empty or huge side");
  }
  const auto expected = static_cast<size_t>(images.count * images.channels * images.height * images.width);
  if (images.pixels.size() != expected) {
    throw std::invalid_argument("Invalid images: shape " + shape + " has " + std::to_string(expected) +
                                " pixels, got " + std::to_string(images.pixels.size()));
  }
}

template <typename Pixel>
Bitmap make_grid(const ImagesView<Pixel>& images, int64_t columns) {
  check(images, columns);
  columns = std::min(columns, images.count);
  const int64_t rows = (images.count + columns - 1) / columns;
  Bitmap grid{.height = rows * images.height, .width = columns * images.width, .channels = images.channels};
  grid.pixels.resize(static_cast<size_t>(grid.height * grid.width * grid.channels));
  const Pixel* source = images.pixels.data();
  for (int64_t image = 0; image < images.count; ++image) {
    const int64_t top = image / columns * images.height;
    const int64_t left = image % columns * images.width;
    for (int64_t channel = 0; channel < images.channels; ++channel) {
      for (int64_t y = 0; y < images.height; ++y) {
        uint8_t* target = grid.pixels.data() + ((top + y) * grid.width + left) * grid.channels + channel;
        for (int64_t x = 0; x < images.width; ++x, target += grid.channels) *target = to_byte(*source++);
      }
    }
  }
  return grid;
}

}  // namespace

Bitmap image_grid(const ImagesView<uint8_t>& images, int64_t columns) {
  return make_grid(images, columns);
}

Bitmap image_grid(const ImagesView<float>& images, int64_t columns) {
  return make_grid(images, columns);
}

std::string encode_png(const Bitmap& bitmap) {
  constexpr png_uint_32 kFormats[] = {PNG_FORMAT_GRAY, PNG_FORMAT_GA, PNG_FORMAT_RGB, PNG_FORMAT_RGBA};
  if (bitmap.channels < 1 || bitmap.channels > 4) throw std::invalid_argument("a PNG image has 1 to 4 channels");
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(bitmap.width);
  image.height = static_cast<png_uint_32>(bitmap.height);
  image.format = kFormats[bitmap.channels - 1];
  // The buffer has the worst-case size, so that the image needs to be compressed only once.
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(image);
  std::string encoded(size, '\0');
  if (png_image_write_to_memory(&image, encoded.data(), &size, 0, bitmap.pixels.data(), 0, nullptr) == 0) {
    throw std::runtime_error("cannot encode a PNG image of " + std::to_string(bitmap.width) + "x" +
                             std::to_string(bitmap.height) + ": " + image.message);
  }
  encoded.resize(size);
  return encoded;
}

}  // namespace ddp

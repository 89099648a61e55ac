// Values for a SummaryWriter other than numbers and texts: images (views of pixels, grids of images, PNG files) and
// hyper-parameters. Does not use LibTorch.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

namespace ddp {

/// A hyper-parameter's value.
using HyperParameter = std::variant<bool, int64_t, double, std::string>;

/// One or more images of the same shape, stored contiguously as (count, channels, height, width), as in a tensor:
/// `{{tensor.const_data_ptr<float>(), size_t(tensor.numel())}, n, c, h, w}`. Refers to the caller's memory. Pixels are
/// uint8, or float from 0 to 1 (other values are clipped, and NaN becomes 0). 1 channel is grey, 2 grey and opacity, 3
/// RGB, 4 RGB and opacity.
template <typename Pixel>
struct ImagesView {
  std::span<const Pixel> pixels;  ///< count × channels × height × width values
  int64_t count = 1;              ///< number of images
  int64_t channels = 3;           ///< of each image, 1 to 4
  int64_t height = 0;             ///< of each image, in pixels
  int64_t width = 0;              ///< of each image, in pixels
};

/// 8-bit pixels in the memory order (height, width, channels), as in image files.
struct Bitmap {
  int64_t height = 0;             ///< in pixels
  int64_t width = 0;              ///< in pixels
  int64_t channels = 0;           ///< bytes per pixel, 1 to 4
  std::vector<uint8_t> pixels{};  ///< height × width × channels bytes
};

/// Arranges the images in a grid with `columns` images per row, without borders. Missing images in the last row are
/// black. A single image is returned unchanged. This is the grid of torch.utils.tensorboard, whose rows have 8 images.
/// Throws std::invalid_argument, naming the shape, if there is no image, if the number of channels is not 1 to 4, or if
/// the number of pixels does not match.
Bitmap image_grid(const ImagesView<uint8_t>& images, int64_t columns = 8);
/// The same for pixels from 0 to 1.
Bitmap image_grid(const ImagesView<float>& images, int64_t columns = 8);

/// Returns the bytes of a lossless PNG file. Throws std::runtime_error if the image cannot be encoded.
std::string encode_png(const Bitmap& bitmap);

}  // namespace ddp

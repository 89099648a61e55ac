#include <algorithm>
#include <string>
#include <utility>

#include "data/formats/picture_formats.h"
#include "data/formats/tiff_file.h"

namespace ddp {
namespace {

/// Samples of a pixel that make its colour; 0 for kinds that are not read.
int color_samples(const TiffLayout& layout) {
  const int bits = layout.bits;
  const bool is_small = bits == 1 || bits == 2 || bits == 4 || bits == 8;
  const bool is_whole = bits == 8 || bits == 16;
  switch (layout.photometric) {
    case PHOTOMETRIC_MINISWHITE:
    case PHOTOMETRIC_MINISBLACK:
      return is_small || is_whole ? 1 : 0;
    case PHOTOMETRIC_PALETTE:
      return is_small ? 1 : 0;
    case PHOTOMETRIC_RGB:
      return is_whole ? 3 : 0;
    case PHOTOMETRIC_SEPARATED:
      return is_whole ? 4 : 0;
    default:
      return 0;
  }
}

void check_kind(const TiffFile& file, const TiffLayout& layout) {
  const int colors = color_samples(layout);
  if (colors > 0 && layout.samples >= colors && layout.sample_format == SAMPLEFORMAT_UINT) return;
  file.refuse("expected grey, palette, RGB, CMYK or YCbCr of 1 to 16 bits, got " + std::to_string(layout.samples) +
              " samples of " + std::to_string(layout.bits) + " bits, sample format " +
              std::to_string(layout.sample_format) + ", photometric interpretation " +
              std::to_string(layout.photometric) + ": convert it");
}

/// The colour before it was multiplied with the opacity, as Pillow takes it; black where nothing is opaque.
uint8_t unmultiplied(uint8_t value, uint8_t opacity) {
  if (opacity == 0) return 0;
  return static_cast<uint8_t>(std::min(255, value * 255 / opacity));
}

void greys_to_rgb(const TiffLayout& layout, const std::vector<uint8_t>& samples, std::vector<uint8_t>& rgb) {
  const int most = layout.bits >= 8 ? 255 : (1 << layout.bits) - 1;
  for (size_t i = 0; i < samples.size(); ++i) {
    int level = samples[i] * 255 / most;
    if (layout.photometric == PHOTOMETRIC_MINISWHITE) level = 255 - level;
    std::fill_n(&rgb[3 * i], 3, static_cast<uint8_t>(level));
  }
}

void unmultiply_rgb(const std::vector<uint8_t>& samples, std::vector<uint8_t>& rgb) {
  for (size_t i = 0; i < samples.size() / 4; ++i) {
    for (size_t c = 0; c < 3; ++c) rgb[3 * i + c] = unmultiplied(samples[4 * i + c], samples[4 * i + 3]);
  }
}

std::vector<uint8_t> read_colors(TiffFile& file, const TiffLayout& layout) {
  const bool is_rgb = layout.photometric == PHOTOMETRIC_RGB;
  const bool is_multiplied = is_rgb && layout.is_premultiplied && layout.samples > 3;
  std::vector<uint8_t> samples = file.read_samples(layout, is_multiplied ? 4 : color_samples(layout));
  if (is_rgb && !is_multiplied) return samples;
  std::vector<uint8_t> rgb(static_cast<size_t>(layout.height * layout.width * 3));
  if (is_multiplied) {
    unmultiply_rgb(samples, rgb);
  } else if (layout.photometric == PHOTOMETRIC_SEPARATED) {
    cmyk_to_rgb(samples.data(), layout.height * layout.width, rgb.data());
  } else if (layout.photometric == PHOTOMETRIC_PALETTE) {
    const auto palette = file.palette(layout);
    for (size_t i = 0; i < samples.size(); ++i) std::copy_n(palette[samples[i]].begin(), 3, &rgb[3 * i]);
  } else {
    greys_to_rgb(layout, samples, rgb);
  }
  return rgb;
}

/// Turned and mirrored as EXIF's orientation says.
Image oriented(Image image, int orientation) {
  if (orientation < 2 || orientation > 8) return image;
  const bool is_turned = orientation >= 5;
  const bool flips_rows = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  const bool flips_columns = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  Image turned{.height = is_turned ? image.width : image.height, .width = is_turned ? image.height : image.width};
  turned.pixels.reserve(image.pixels.size());
  for (int64_t y = 0; y < turned.height; ++y) {
    for (int64_t x = 0; x < turned.width; ++x) {
      int64_t row = is_turned ? x : y;
      int64_t column = is_turned ? y : x;
      if (flips_rows) row = image.height - 1 - row;
      if (flips_columns) column = image.width - 1 - column;
      const uint8_t* pixel = &image.pixels[static_cast<size_t>((row * image.width + column) * 3)];
      turned.pixels.insert(turned.pixels.end(), pixel, pixel + 3);
    }
  }
  return turned;
}

}  // namespace

Image decode_tiff(const std::vector<uint8_t>& bytes, const std::filesystem::path& path, const DecodeOptions& options) {
  constexpr int64_t kAlways = int64_t{1} << 26;
  TiffFile file(bytes, path, std::max(kAlways, options.most_pixels * 16));
  TiffLayout layout = file.layout();
  check_image_size(path, layout.height, layout.width, options);
  if (layout.photometric == PHOTOMETRIC_YCBCR && layout.compression == COMPRESSION_JPEG && !layout.is_separate) {
    file.convert_jpeg_to_rgb();
    layout.photometric = PHOTOMETRIC_RGB;
  }
  Image image{.height = layout.height, .width = layout.width};
  if (layout.photometric == PHOTOMETRIC_YCBCR) {
    image.pixels = file.read_rgb(layout);
  } else {
    check_kind(file, layout);
    image.pixels = read_colors(file, layout);
  }
  return oriented(std::move(image), layout.orientation);
}

}  // namespace ddp

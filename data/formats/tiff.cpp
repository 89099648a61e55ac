#include <algorithm>
#include <array>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "data/formats/color_table.h"
#include "data/formats/limits.h"
#include "data/formats/picture_formats.h"
#include "data/formats/tiff_file.h"

namespace ddp {
namespace {

/// The number of samples of a pixel that define its colour; 0 for kinds that cannot be read.
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

/// Reverts the multiplication of a colour with the opacity, as Pillow does; black if the opacity is 0.
uint8_t unmultiplied(uint8_t value, uint8_t opacity) {
  if (opacity == 0) return 0;
  return static_cast<uint8_t>(std::min(255, value * 255 / opacity));
}

/// The meaning of the samples of a pixel.
enum class Colors { kTable, kRgb, kPremultiplied, kCmyk, kRgba };

/// Converts rows of samples to RGB, and places them according to the EXIF orientation.
class TiffPicture {
 public:
  TiffPicture(const TiffLayout& layout, Colors colors, const std::vector<std::array<uint8_t, 3>>& table)
      : layout_(layout), colors_(colors) {
    for (size_t i = 0; i < table.size(); ++i) std::copy(table[i].begin(), table[i].end(), table_[i].begin());
    const int orientation = layout.orientation >= 1 && layout.orientation <= 8 ? layout.orientation : 1;
    is_turned_ = orientation >= 5;
    flips_rows_ = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
    flips_columns_ = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
    image_ = {.height = is_turned_ ? layout.width : layout.height, .width = is_turned_ ? layout.height : layout.width};
    const auto bytes = static_cast<size_t>(layout.height * layout.width * 3);
    image_.pixels.reserve(bytes);
    if (!is_in_order()) image_.pixels.resize(bytes);
  }

  /// Whether the rows are stored in order without gaps. If so, memory is allocated as they are read.
  static bool is_in_order(const TiffLayout& layout) {
    return !layout.is_separate && (layout.orientation < 2 || layout.orientation > 8);
  }

  void put(const TiffRow& row) {
    if (is_in_order()) {
      const auto end = static_cast<size_t>((row.y + 1) * layout_.width * 3);
      if (image_.pixels.size() < end) image_.pixels.resize(end);
    }
    const int64_t y = flips_rows_ ? layout_.height - 1 - row.y : row.y;
    const int64_t x = flips_columns_ ? layout_.width - 1 - row.x : row.x;
    const int64_t pixel = is_turned_ ? x * image_.width + y : y * image_.width + x;
    const int64_t step = (is_turned_ ? image_.width : 1) * (flips_columns_ ? -3 : 3);
    uint8_t* rgb = image_.pixels.data() + pixel * 3;
    if (layout_.is_separate && colors_ != Colors::kTable && colors_ != Colors::kRgba) {
      put_plane(row, rgb, step);
    } else if (step == 3) {
      convert(row, rgb);
    } else {
      converted_.resize(static_cast<size_t>(row.columns * 3));
      convert(row, converted_.data());
      for (int64_t i = 0; i < row.columns; ++i) std::copy_n(&converted_[static_cast<size_t>(3 * i)], 3, rgb + i * step);
    }
  }

  Image take() { return std::move(image_); }

 private:
  bool is_in_order() const { return is_in_order(layout_); }

  void convert(const TiffRow& row, uint8_t* rgb) {
    const int bits = layout_.bits;
    const int samples = layout_.is_separate ? 1 : layout_.samples;
    if (colors_ == Colors::kCmyk) {
      inks_.resize(static_cast<size_t>(4 * row.columns));
      for (int64_t i = 0; i < row.columns; ++i) {
        for (int64_t c = 0; c < 4; ++c) {
          inks_[static_cast<size_t>(4 * i + c)] = tiff_sample(row.samples, i * samples + c, bits);
        }
      }
      cmyk_to_rgb(inks_.data(), row.columns, rgb);
      return;
    }
    if (colors_ == Colors::kRgb && bits == 8 && samples == 3) {
      std::copy_n(row.samples, 3 * row.columns, rgb);
      return;
    }
    if (colors_ == Colors::kTable && samples == 1 && bits <= 8) {
      put_colors(table_, row.samples, bits, rgb, 1, row.columns);
      return;
    }
    for (int64_t i = 0; i < row.columns; ++i, rgb += 3) {
      if (colors_ == Colors::kTable) {
        std::copy_n(table_[tiff_sample(row.samples, i * samples, bits)].begin(), 3, rgb);
      } else if (colors_ == Colors::kRgba) {
        std::copy_n(row.samples + 4 * i, 3, rgb);
      } else {
        for (int64_t c = 0; c < 3; ++c) rgb[c] = tiff_sample(row.samples, i * samples + c, bits);
        if (colors_ != Colors::kPremultiplied) continue;
        const uint8_t opacity = tiff_sample(row.samples, i * samples + 3, bits);
        for (int64_t c = 0; c < 3; ++c) rgb[c] = unmultiplied(rgb[c], opacity);
      }
    }
  }

  /// The first three samples of a pixel are stored in its place until the fourth one is read.
  void put_plane(const TiffRow& row, uint8_t* rgb, int64_t step) const {
    for (int64_t i = 0; i < row.columns; ++i, rgb += step) {
      const uint8_t sample = tiff_sample(row.samples, i, layout_.bits);
      if (row.plane < 3) {
        rgb[row.plane] = sample;
      } else if (colors_ == Colors::kPremultiplied) {
        for (int c = 0; c < 3; ++c) rgb[c] = unmultiplied(rgb[c], sample);
      } else {
        const std::array<uint8_t, 4> inks = {rgb[0], rgb[1], rgb[2], sample};
        cmyk_to_rgb(inks.data(), 1, rgb);
      }
    }
  }

  TiffLayout layout_;
  Colors colors_;
  ColorTable table_{};
  bool is_turned_ = false;
  bool flips_rows_ = false;
  bool flips_columns_ = false;
  Image image_;
  std::vector<uint8_t> converted_;
  std::vector<uint8_t> inks_;
};

/// The colours of all values of a sample, from black to white or from white to black.
std::vector<std::array<uint8_t, 3>> greys(const TiffLayout& layout) {
  const int most = layout.bits >= 8 ? 255 : (1 << layout.bits) - 1;
  std::vector<std::array<uint8_t, 3>> table(static_cast<size_t>(most) + 1);
  for (int value = 0; value <= most; ++value) {
    const int level = value * 255 / most;
    table[static_cast<size_t>(value)].fill(
        static_cast<uint8_t>(layout.photometric == PHOTOMETRIC_MINISWHITE ? 255 - level : level));
  }
  return table;
}

/// If rows are stored in another order, or in tiles of many rows, all memory of the picture is touched immediately.
bool must_check_before_decoding(TiffFile& file, const TiffLayout& layout) {
  constexpr int64_t kLargeTiles = int64_t{16} << 20;
  if (!needs_check_pass(layout.height * layout.width * 3, file.file_bytes())) return false;
  const TiffFile::Chunk chunk = file.chunk(layout);
  const bool has_large_tiles = chunk.is_tile && std::min(chunk.rows, layout.height) * layout.width * 3 > kLargeTiles;
  return has_large_tiles || !TiffPicture::is_in_order(layout);
}

Colors colors_of(const TiffLayout& layout) {
  switch (layout.photometric) {
    case PHOTOMETRIC_YCBCR:
      return Colors::kRgba;
    case PHOTOMETRIC_RGB:
      return layout.is_premultiplied && layout.samples > 3 ? Colors::kPremultiplied : Colors::kRgb;
    case PHOTOMETRIC_SEPARATED:
      return Colors::kCmyk;
    default:
      return Colors::kTable;
  }
}

}  // namespace

Image decode_tiff(const std::vector<uint8_t>& bytes, const std::filesystem::path& path, const DecodeOptions& options) {
  TiffFile file(bytes, path);
  TiffLayout layout = file.layout();
  check_image_size(path, layout.height, layout.width, options);
  if (layout.photometric == PHOTOMETRIC_YCBCR && layout.compression == COMPRESSION_JPEG && !layout.is_separate) {
    file.convert_jpeg_to_rgb();
    layout.photometric = PHOTOMETRIC_RGB;
  }
  const Colors colors = colors_of(layout);
  if (colors != Colors::kRgba) check_kind(file, layout);
  const auto read = [&](const std::function<void(const TiffRow&)>& take) {
    if (colors == Colors::kRgba) {
      file.read_rgba(layout, take);
    } else {
      file.read_rows(layout, colors == Colors::kPremultiplied ? 4 : color_samples(layout), take);
    }
  };
  if (must_check_before_decoding(file, layout)) {
    const bool is_turned = layout.orientation >= 5 && layout.orientation <= 8;
    file.set_passes(is_turned ? 3 : 2);  // writing columns takes as long as another pass
    read([](const TiffRow&) {});
  }
  std::vector<std::array<uint8_t, 3>> table;
  if (layout.photometric == PHOTOMETRIC_PALETTE) table = file.palette(layout);
  if (colors == Colors::kTable && table.empty()) table = greys(layout);
  TiffPicture picture(layout, colors, table);
  read([&](const TiffRow& row) { picture.put(row); });
  return picture.take();
}

}  // namespace ddp

#include <png.h>

#include <array>
#include <bit>
#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>

#include <ddprun/data/byte_source.h>

#include "data/formats/color_table.h"
#include "data/formats/limits.h"
#include "data/formats/picture_formats.h"
#include "data/formats/raster.h"

namespace ddp {
namespace {

struct Source {
  const uint8_t* next = nullptr;
  size_t left = 0;
  std::jmp_buf back{};
  std::array<char, 256> message{};
};

struct Reader {
  png_structp png = nullptr;
  png_infop info = nullptr;
  Reader() = default;
  ~Reader() { png_destroy_read_struct(&png, &info, nullptr); }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;
};

/// libpng reports errors with a callback that must not return. It uses longjmp, which is safe because only C code lies
/// in between.
[[noreturn]] void stop(png_structp png, png_const_charp message) {
  auto& source = *static_cast<Source*>(png_get_error_ptr(png));
  std::snprintf(source.message.data(), source.message.size(), "%s", message);
  std::longjmp(source.back, 1);
}

void ignore(png_structp /*png*/, png_const_charp /*message*/) {}

void copy(png_structp png, png_bytep bytes, size_t count) {
  auto& source = *static_cast<Source*>(png_get_io_ptr(png));
  if (count > source.left) png_error(png, "the file is truncated");
  std::memcpy(bytes, source.next, count);
  source.next += count;
  source.left -= count;
}

/// Makes libpng ignore all other chunks, so that values stay unchanged: gAMA, sRGB, cHRM and iCCP change no pixel (as
/// in Pillow and torchvision), and tRNS, bKGD and opacity change no colour. Chunks that are not read cannot cause
/// errors either.
void ignore_unknown_chunks(png_structp png) {
  constexpr int kKnownAndUnknown = -1;
  png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, nullptr, kKnownAndUnknown);
  png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, reinterpret_cast<png_const_bytep>("tRNS"), 1);
}

/// The bytes of all rows after decompression, including one byte per row for its filter.
int64_t unpacked_bytes(png_structp png, png_infop info) {
  const int64_t height = png_get_image_height(png, info);
  const int64_t width = png_get_image_width(png, info);
  const int64_t bits = int64_t{png_get_bit_depth(png, info)} * png_get_channels(png, info);
  if (png_get_interlace_type(png, info) == PNG_INTERLACE_NONE) return height * (1 + (width * bits + 7) / 8);
  int64_t bytes = 0;
  for (int pass = 0; pass < PNG_INTERLACE_ADAM7_PASSES; ++pass) {
    const int64_t columns = PNG_PASS_COLS(width, pass);
    if (columns > 0) bytes += PNG_PASS_ROWS(height, pass) * (1 + (columns * bits + 7) / 8);
  }
  return bytes;
}

/// The output of the rows: interleaved RGB of 8 bits, or each channel of the file in a separate plane of 8 or 16 bits
/// (the indices of a palette are one channel).
struct Picture {
  const RasterMemory* memory = nullptr;  ///< null for RGB
  Raster shape{.channels = 3};
  int index_bits = 0;  ///< the bits of an index if rows contain indices into `colors`; otherwise 0
  ColorTable colors{};
  std::vector<uint8_t> rgb{};
  uint8_t* samples = nullptr;
};

enum class Decoded { kDone, kTooLarge, kUnchecked, kFailed };

/// How rows are handled. kTry keeps them, but returns kUnchecked immediately for a large interlaced picture.
enum class Rows { kTry, kDrop, kKeep };

/// Stores `count` pixels of row `y`: the first at column `x`, the following ones `step` columns apart.
void put_pixels(Picture& picture, const uint8_t* row, int64_t y, int64_t x, int64_t step, int64_t count) {
  const auto& [height, width, channels, kind, bytes] = picture.shape;
  if (picture.memory != nullptr) {
    for (int64_t c = 0; c < channels; ++c) {
      uint8_t* to = picture.samples + ((c * height + y) * width + x) * bytes;
      copy_samples(row + c * bytes, channels, to, step, count, bytes);
    }
    return;
  }
  uint8_t* rgb = picture.rgb.data() + (y * width + x) * 3;
  if (picture.index_bits > 0) {
    put_colors(picture.colors, row, picture.index_bits, rgb, step, count);
  } else if (step == 1) {
    std::memcpy(rgb, row, static_cast<size_t>(3 * count));
  } else {
    for (int64_t i = 0; i < count; ++i) std::memcpy(rgb + 3 * step * i, row + 3 * i, 3);
  }
}

/// Reads complete rows from top to bottom. Memory for RGB is allocated as the rows are read.
void read_in_order(Reader& reader, Rows rows, std::vector<uint8_t>& row, Picture& picture) {
  const auto& [height, width, channels, kind, bytes] = picture.shape;
  const bool is_rgb = picture.memory == nullptr;
  for (int64_t y = 0; y < height; ++y) {
    uint8_t* place = row.data();
    if (rows != Rows::kDrop) {
      uint8_t* rgb = is_rgb ? add_row(picture.rgb, static_cast<size_t>(3 * width)) : nullptr;
      if (is_rgb && picture.index_bits == 0) place = rgb;
      if (!is_rgb && channels == 1) place = picture.samples + y * width * bytes;
    }
    png_read_row(reader.png, place, nullptr);
    if (rows != Rows::kDrop && place == row.data()) put_pixels(picture, place, y, 0, 1, width);
  }
}

/// Reads the passes of an interlaced picture. Each pass contains some columns of some rows.
void read_passes(Reader& reader, Rows rows, std::vector<uint8_t>& row, Picture& picture) {
  const int64_t height = picture.shape.height, width = picture.shape.width;
  if (rows != Rows::kDrop && picture.memory == nullptr) picture.rgb.resize(static_cast<size_t>(3 * height * width));
  for (int pass = 0; pass < PNG_INTERLACE_ADAM7_PASSES; ++pass) {
    const int64_t columns = PNG_PASS_COLS(width, pass);
    const int64_t count = columns > 0 ? PNG_PASS_ROWS(height, pass) : 0;
    for (int64_t i = 0; i < count; ++i) {
      png_read_row(reader.png, row.data(), nullptr);
      if (rows == Rows::kDrop) continue;
      put_pixels(picture, row.data(), PNG_ROW_FROM_PASS_ROW(i, pass), PNG_COL_FROM_PASS_COL(0, pass),
                 int64_t{1} << PNG_PASS_COL_SHIFT(pass), columns);
    }
  }
}

/// Handles palette indices, and grey of up to 8 bits, which is expanded faster here than in libpng. As in libpng, a
/// colour that is missing in the palette is black.
void request_colors(Reader& reader, Picture& picture) {
  const int bits = png_get_bit_depth(reader.png, reader.info);
  const bool is_palette = png_get_color_type(reader.png, reader.info) == PNG_COLOR_TYPE_PALETTE;
  picture.index_bits = bits > 8 ? 8 : bits;
  if (is_palette) {
    png_colorp colors = nullptr;
    int count = 0;
    if (png_get_PLTE(reader.png, reader.info, &colors, &count) == 0) png_error(reader.png, "there is no palette");
    for (int i = 0; i < count && i < 256; ++i) {
      picture.colors[static_cast<size_t>(i)] = {colors[i].red, colors[i].green, colors[i].blue};
    }
    return;
  }
  png_set_strip_16(reader.png);
  const int most = (1 << picture.index_bits) - 1;
  for (int i = 0; i <= most; ++i) picture.colors[static_cast<size_t>(i)].fill(static_cast<uint8_t>(i * 255 / most));
}

void request(Reader& reader, Picture& picture) {
  const int color_type = png_get_color_type(reader.png, reader.info);
  if (picture.memory != nullptr) {
    if (color_type == PNG_COLOR_TYPE_PALETTE) {
      png_set_packing(reader.png);  // one byte per index
    } else {
      png_set_expand_gray_1_2_4_to_8(reader.png);
    }
    if constexpr (std::endian::native == std::endian::little) png_set_swap(reader.png);
    return;
  }
  if (color_type == PNG_COLOR_TYPE_PALETTE || color_type == PNG_COLOR_TYPE_GRAY) return request_colors(reader, picture);
  png_set_strip_16(reader.png);
  png_set_gray_to_rgb(reader.png);
  png_set_strip_alpha(reader.png);
}

/// The part that longjmp may leave. It must contain no object with a destructor, because longjmp would not call it.
/// `row` is resized to the size of a row.
Decoded decode(Reader& reader, Source& source, const std::filesystem::path& path, const DecodeOptions& options,
               Rows rows, std::vector<uint8_t>& row, Picture& picture) {
  const auto file_bytes = static_cast<int64_t>(source.left);
  const bool is_rgb = picture.memory == nullptr;
  Raster& shape = picture.shape;
  if (setjmp(source.back) != 0) return Decoded::kFailed;
  png_set_read_fn(reader.png, &source, copy);
  ignore_unknown_chunks(reader.png);
  png_read_info(reader.png, reader.info);
  shape.height = png_get_image_height(reader.png, reader.info);
  shape.width = png_get_image_width(reader.png, reader.info);
  if (shape.height > options.most_pixels / shape.width) return Decoded::kTooLarge;
  const int64_t unpacked = unpacked_bytes(reader.png, reader.info);
  if (unpacked / kMaxInflation > file_bytes) png_error(reader.png, "the file is too short for its pixels");
  constexpr int64_t kMaxPixelBytes = 8;
  constexpr int64_t kTimesInterlaced = 3;  // it is read twice, and its short rows take longer
  const bool is_large = needs_check_pass(shape.height * shape.width * (is_rgb ? 3 : kMaxPixelBytes), file_bytes);
  const bool is_interlaced = png_get_interlace_type(reader.png, reader.info) != PNG_INTERLACE_NONE;
  check_unpacked_size(path, unpacked, file_bytes, is_large && is_interlaced ? kTimesInterlaced : 1);
  if (rows == Rows::kTry && is_large && is_interlaced) return Decoded::kUnchecked;
  if (rows != Rows::kDrop) request(reader, picture);
  png_read_update_info(reader.png, reader.info);
  row.resize(png_get_rowbytes(reader.png, reader.info));
  if (rows != Rows::kDrop) {
    if (!is_rgb) shape.channels = png_get_channels(reader.png, reader.info);
    shape.sample_bytes = png_get_bit_depth(reader.png, reader.info) / 8;
    const int64_t pixel_bits = picture.index_bits > 0 ? picture.index_bits : 8 * shape.channels * shape.sample_bytes;
    if (static_cast<int64_t>(row.size()) != (shape.width * pixel_bits + 7) / 8) {
      png_error(reader.png, "pixels of an unknown kind");
    }
    if (is_rgb) {
      picture.rgb.reserve(static_cast<size_t>(3 * shape.height * shape.width));
    } else {
      picture.samples = (*picture.memory)(shape);
    }
  }
  if (is_interlaced) {
    read_passes(reader, rows, row, picture);
  } else {
    read_in_order(reader, rows, row, picture);
  }
  return Decoded::kDone;
}

/// Returns false for a large interlaced picture with kTry: the caller must first check that the file is complete.
bool read(const std::vector<uint8_t>& bytes, const std::filesystem::path& path, const DecodeOptions& options, Rows rows,
          Picture& picture) {
  Source source{.next = bytes.data(), .left = bytes.size()};
  Reader reader;
  reader.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &source, stop, ignore);
  if (reader.png != nullptr) reader.info = png_create_info_struct(reader.png);
  if (reader.info == nullptr) throw std::bad_alloc();
  std::vector<uint8_t> row;
  switch (decode(reader, source, path, options, rows, row, picture)) {
    case Decoded::kFailed:
      throw DataError(path, std::string("not a valid PNG file: ") + source.message.data());
    case Decoded::kTooLarge:
      check_image_size(path, picture.shape.height, picture.shape.width, options);
      break;
    case Decoded::kUnchecked:
      return false;
    case Decoded::kDone:
      break;
  }
  return true;
}

void read(const std::vector<uint8_t>& bytes, const std::filesystem::path& path, const DecodeOptions& options,
          Picture& picture) {
  if (read(bytes, path, options, Rows::kTry, picture)) return;
  read(bytes, path, options, Rows::kDrop, picture);
  read(bytes, path, options, Rows::kKeep, picture);
}

}  // namespace

Image decode_png(const std::vector<uint8_t>& bytes, const std::filesystem::path& path, const DecodeOptions& options) {
  Picture picture;
  read(bytes, path, options, picture);
  return {.height = picture.shape.height, .width = picture.shape.width, .pixels = std::move(picture.rgb)};
}

Raster decode_png_raster(const std::vector<uint8_t>& bytes, const std::filesystem::path& path,
                         const DecodeOptions& options, const RasterMemory& memory) {
  Picture picture{.memory = &memory};
  read(bytes, path, options, picture);
  return picture.shape;
}

}  // namespace ddp

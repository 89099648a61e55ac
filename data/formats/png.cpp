#include <png.h>

#include <array>
#include <bit>
#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include <ddprun/data/byte_source.h>

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

/// libpng reports by a callback that must not return; everything that it calls over is plain C.
[[noreturn]] void stop(png_structp png, png_const_charp message) {
  auto& source = *static_cast<Source*>(png_get_error_ptr(png));
  std::snprintf(source.message.data(), source.message.size(), "%s", message);
  std::longjmp(source.back, 1);
}

void ignore(png_structp /*png*/, png_const_charp /*message*/) {}

void copy(png_structp png, png_bytep bytes, size_t count) {
  auto& source = *static_cast<Source*>(png_get_io_ptr(png));
  if (count > source.left) png_error(png, "the file is cut short");
  std::memcpy(bytes, source.next, count);
  source.next += count;
  source.left -= count;
}

/// The values as they are: gAMA, sRGB, cHRM and iCCP change no pixel (nor do they with Pillow and torchvision), and
/// tRNS, bKGD and opacity no colour. Chunks that are not looked at cannot be wrong either.
void keep_out_others(png_structp png) {
  constexpr int kKnownAndUnknown = -1;
  png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, nullptr, kKnownAndUnknown);
  png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, reinterpret_cast<png_const_bytep>("tRNS"), 1);
}

/// The bytes of all rows before they are compressed, each with the byte that names its filter.
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

/// How samples are given: 8-bit RGB, or with the file's channels (an index of a palette is one) and 8 or 16 bits.
enum class PngSamples { kRgb, kStored };

/// Pixels of the kind asked for.
struct PngPixels {
  Image image{};
  int64_t channels = 3;
  int64_t sample_bytes = 1;
};

enum class Decoded { kDone, kTooLarge, kUnchecked, kFailed };

/// What is done with the rows. kTry: they are kept, but an interlaced picture that is large is kUnchecked at once.
enum class Rows { kTry, kDrop, kKeep };

/// Memory for a picture in one pass is allocated as rows are read; interlaced rows are spread over all of it.
void read_rows(Reader& reader, int passes, Rows rows, std::vector<uint8_t>& row, Image& image) {
  const size_t row_bytes = row.size();
  const size_t bytes = static_cast<size_t>(image.height) * row_bytes;
  if (rows != Rows::kDrop) image.pixels.reserve(bytes);
  if (rows != Rows::kDrop && passes > 1) image.pixels.resize(bytes);
  for (int pass = 0; pass < passes; ++pass) {
    for (int64_t y = 0; y < image.height; ++y) {
      uint8_t* pixels = row.data();
      if (rows != Rows::kDrop) {
        pixels =
            passes == 1 ? add_row(image.pixels, row_bytes) : image.pixels.data() + static_cast<size_t>(y) * row_bytes;
      }
      png_read_row(reader.png, pixels, nullptr);
    }
  }
}

void request(Reader& reader, PngSamples samples) {
  if (samples == PngSamples::kStored) {
    if (png_get_color_type(reader.png, reader.info) == PNG_COLOR_TYPE_PALETTE) {
      png_set_packing(reader.png);  // a byte for each index
    } else {
      png_set_expand_gray_1_2_4_to_8(reader.png);
    }
    if constexpr (std::endian::native == std::endian::little) png_set_swap(reader.png);
    return;
  }
  png_set_expand(reader.png);
  png_set_strip_16(reader.png);
  png_set_gray_to_rgb(reader.png);
  png_set_strip_alpha(reader.png);
}

/// The C part. No object with a destructor may live here: a longjmp would not destroy it. `row` becomes room for a row.
Decoded decode(Reader& reader, Source& source, const std::filesystem::path& path, const DecodeOptions& options,
               Rows rows, PngSamples samples, std::vector<uint8_t>& row, PngPixels& pixels) {
  const auto file_bytes = static_cast<int64_t>(source.left);
  Image& image = pixels.image;
  if (setjmp(source.back) != 0) return Decoded::kFailed;
  png_set_read_fn(reader.png, &source, copy);
  keep_out_others(reader.png);
  png_read_info(reader.png, reader.info);
  image.height = png_get_image_height(reader.png, reader.info);
  image.width = png_get_image_width(reader.png, reader.info);
  if (image.height > options.most_pixels / image.width) return Decoded::kTooLarge;
  const int64_t unpacked = unpacked_bytes(reader.png, reader.info);
  if (unpacked / kMostInflation > file_bytes) png_error(reader.png, "the file is too short for its pixels");
  constexpr int64_t kMostPixelBytes = 8;
  const int64_t pixel_bytes = samples == PngSamples::kRgb ? 3 : kMostPixelBytes;
  const bool is_large = is_checked_first(image.height * image.width * pixel_bytes, file_bytes);
  const bool is_interlaced = png_get_interlace_type(reader.png, reader.info) != PNG_INTERLACE_NONE;
  check_unpacked_size(path, is_large && is_interlaced ? 2 * unpacked : unpacked, file_bytes);
  if (rows == Rows::kTry && is_large && is_interlaced) return Decoded::kUnchecked;
  request(reader, samples);
  const int passes = png_set_interlace_handling(reader.png);
  png_read_update_info(reader.png, reader.info);
  row.resize(png_get_rowbytes(reader.png, reader.info));
  pixels.channels = png_get_channels(reader.png, reader.info);
  pixels.sample_bytes = png_get_bit_depth(reader.png, reader.info) / 8;
  const bool is_known = samples == PngSamples::kStored || pixels.channels * pixels.sample_bytes == 3;
  if (!is_known || static_cast<int64_t>(row.size()) != image.width * pixels.channels * pixels.sample_bytes) {
    png_error(reader.png, "pixels of an unknown kind");
  }
  read_rows(reader, passes, rows, row, image);
  return Decoded::kDone;
}

/// Nothing for a large interlaced picture: whether all of it is there has to be known first.
std::optional<PngPixels> read(const std::vector<uint8_t>& bytes, const std::filesystem::path& path,
                              const DecodeOptions& options, Rows rows, PngSamples samples) {
  Source source{.next = bytes.data(), .left = bytes.size()};
  Reader reader;
  reader.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &source, stop, ignore);
  if (reader.png != nullptr) reader.info = png_create_info_struct(reader.png);
  if (reader.info == nullptr) throw std::bad_alloc();
  PngPixels pixels;
  std::vector<uint8_t> row;
  switch (decode(reader, source, path, options, rows, samples, row, pixels)) {
    case Decoded::kFailed:
      throw DataError(path, std::string("not a valid PNG file: ") + source.message.data());
    case Decoded::kTooLarge:
      check_image_size(path, pixels.image.height, pixels.image.width, options);
      break;
    case Decoded::kUnchecked:
      return std::nullopt;
    case Decoded::kDone:
      break;
  }
  return pixels;
}

PngPixels read(const std::vector<uint8_t>& bytes, const std::filesystem::path& path, const DecodeOptions& options,
               PngSamples samples) {
  if (auto pixels = read(bytes, path, options, Rows::kTry, samples)) return *std::move(pixels);
  read(bytes, path, options, Rows::kDrop, samples);
  return *read(bytes, path, options, Rows::kKeep, samples);
}

}  // namespace

Image decode_png(const std::vector<uint8_t>& bytes, const std::filesystem::path& path, const DecodeOptions& options) {
  return read(bytes, path, options, PngSamples::kRgb).image;
}

Raster decode_png_raster(const std::vector<uint8_t>& bytes, const std::filesystem::path& path,
                         const DecodeOptions& options) {
  PngPixels pixels = read(bytes, path, options, PngSamples::kStored);
  return {.height = pixels.image.height,
          .width = pixels.image.width,
          .channels = pixels.channels,
          .sample_bytes = pixels.sample_bytes,
          .bytes = std::move(pixels.image.pixels)};
}

}  // namespace ddp

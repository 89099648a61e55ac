#include <png.h>

#include <array>
#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include <ddprun/data/byte_source.h>

#include "data/formats/limits.h"
#include "data/formats/picture_formats.h"

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
void request_rgb(png_structp png) {
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

/// The C part. No object with a destructor may live here: a longjmp would not destroy it. `row` becomes room for a row.
Decoded decode(Reader& reader, Source& source, const std::filesystem::path& path, const DecodeOptions& options,
               Rows rows, std::vector<uint8_t>& row, Image& image) {
  const auto file_bytes = static_cast<int64_t>(source.left);
  if (setjmp(source.back) != 0) return Decoded::kFailed;
  png_set_read_fn(reader.png, &source, copy);
  request_rgb(reader.png);
  png_read_info(reader.png, reader.info);
  image.height = png_get_image_height(reader.png, reader.info);
  image.width = png_get_image_width(reader.png, reader.info);
  if (image.height > options.most_pixels / image.width) return Decoded::kTooLarge;
  const int64_t unpacked = unpacked_bytes(reader.png, reader.info);
  if (unpacked / kMostInflation > file_bytes) png_error(reader.png, "the file is too short for its pixels");
  const bool is_large = is_checked_first(image.height * image.width * 3, file_bytes);
  const bool is_interlaced = png_get_interlace_type(reader.png, reader.info) != PNG_INTERLACE_NONE;
  check_unpacked_size(path, is_large && is_interlaced ? 2 * unpacked : unpacked, file_bytes);
  if (rows == Rows::kTry && is_large && is_interlaced) return Decoded::kUnchecked;
  png_set_expand(reader.png);
  png_set_strip_16(reader.png);
  png_set_gray_to_rgb(reader.png);
  png_set_strip_alpha(reader.png);
  const int passes = png_set_interlace_handling(reader.png);
  png_read_update_info(reader.png, reader.info);
  row.resize(png_get_rowbytes(reader.png, reader.info));
  if (row.size() != static_cast<size_t>(image.width) * 3) png_error(reader.png, "pixels of an unknown kind");
  read_rows(reader, passes, rows, row, image);
  return Decoded::kDone;
}

/// Nothing for a large interlaced picture: whether all of it is there has to be known first.
std::optional<Image> read(const std::vector<uint8_t>& bytes, const std::filesystem::path& path,
                          const DecodeOptions& options, Rows rows) {
  Source source{.next = bytes.data(), .left = bytes.size()};
  Reader reader;
  reader.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &source, stop, ignore);
  if (reader.png != nullptr) reader.info = png_create_info_struct(reader.png);
  if (reader.info == nullptr) throw std::bad_alloc();
  Image image;
  std::vector<uint8_t> row;
  switch (decode(reader, source, path, options, rows, row, image)) {
    case Decoded::kFailed:
      throw DataError(path, std::string("not a valid PNG file: ") + source.message.data());
    case Decoded::kTooLarge:
      check_image_size(path, image.height, image.width, options);
      break;
    case Decoded::kUnchecked:
      return std::nullopt;
    case Decoded::kDone:
      break;
  }
  return image;
}

}  // namespace

Image decode_png(const std::vector<uint8_t>& bytes, const std::filesystem::path& path, const DecodeOptions& options) {
  if (auto image = read(bytes, path, options, Rows::kTry)) return *std::move(image);
  read(bytes, path, options, Rows::kDrop);
  return *read(bytes, path, options, Rows::kKeep);
}

}  // namespace ddp

#include <png.h>

#include <array>
#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <string>

#include <ddprun/data/error.h>

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
void ask_for_plain_rgb(png_structp png) {
  constexpr int kKnownAndUnknown = -1;
  png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, nullptr, kKnownAndUnknown);
  png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, reinterpret_cast<png_const_bytep>("tRNS"), 1);
}

enum class Decoded { kDone, kTooLarge, kFailed };

/// The C part. No object with a destructor may live here: a jump would leave it behind.
Decoded decode(Reader& reader, Source& source, const DecodeOptions& options, Image& image) {
  if (setjmp(source.back) != 0) return Decoded::kFailed;
  png_set_read_fn(reader.png, &source, copy);
  ask_for_plain_rgb(reader.png);
  png_read_info(reader.png, reader.info);
  image.height = png_get_image_height(reader.png, reader.info);
  image.width = png_get_image_width(reader.png, reader.info);
  if (image.height > options.most_pixels / image.width) return Decoded::kTooLarge;
  png_set_expand(reader.png);
  png_set_strip_16(reader.png);
  png_set_gray_to_rgb(reader.png);
  png_set_strip_alpha(reader.png);
  const int passes = png_set_interlace_handling(reader.png);
  png_read_update_info(reader.png, reader.info);
  const size_t row_bytes = png_get_rowbytes(reader.png, reader.info);
  if (row_bytes != static_cast<size_t>(image.width) * 3) png_error(reader.png, "pixels of an unknown kind");
  image.pixels.resize(static_cast<size_t>(image.height) * row_bytes);
  for (int pass = 0; pass < passes; ++pass) {
    for (int64_t row = 0; row < image.height; ++row) {
      png_read_row(reader.png, image.pixels.data() + static_cast<size_t>(row) * row_bytes, nullptr);
    }
  }
  return Decoded::kDone;
}

}  // namespace

Image decode_png(const std::vector<uint8_t>& bytes, const std::filesystem::path& path, const DecodeOptions& options) {
  Source source{.next = bytes.data(), .left = bytes.size()};
  Reader reader;
  reader.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &source, stop, ignore);
  if (reader.png != nullptr) reader.info = png_create_info_struct(reader.png);
  if (reader.info == nullptr) throw std::bad_alloc();
  Image image;
  switch (decode(reader, source, options, image)) {
    case Decoded::kFailed:
      throw DataError(path, std::string("not a valid PNG file: ") + source.message.data());
    case Decoded::kTooLarge:
      check_image_size(path, image.height, image.width, options);
      break;
    case Decoded::kDone:
      break;
  }
  return image;
}

}  // namespace ddp

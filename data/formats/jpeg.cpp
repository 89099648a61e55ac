#include <csetjmp>
#include <cstdio>
// libjpeg's headers need what <cstdio> declares.
#include <jpeglib.h>
// And this one needs the one before.
#include <jerror.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>

#include <ddprun/data/error.h>

#include "data/formats/jpeg_coefficients.h"
#include "data/formats/limits.h"
#include "data/formats/picture_formats.h"

namespace ddp {
namespace {

/// libjpeg reports by a callback that must not return; everything that it calls over is plain C.
struct ErrorHandler {
  jpeg_error_mgr manager{};  // first: libjpeg knows it by its address
  std::jmp_buf back{};
  std::array<char, JMSG_LENGTH_MAX> message{};
  jpeg_progress_mgr progress{};
  int64_t file_bytes = 0;
};

ErrorHandler& handler_of(j_common_ptr decoder) {
  return *reinterpret_cast<ErrorHandler*>(decoder->err);
}

[[noreturn]] void stop(j_common_ptr decoder) {
  ErrorHandler& handler = handler_of(decoder);
  handler.manager.format_message(decoder, handler.message.data());
  std::longjmp(handler.back, 1);
}

/// A level of -1 is a warning. Where data is missing libjpeg goes on with grey, which nobody wants to train on; other
/// oddities, such as bytes between two markers, are common and harmless.
void note(j_common_ptr decoder, int level) {
  const int code = decoder->err->msg_code;
  if (level < 0 && (code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER)) stop(decoder);
}

int64_t blocks_of(const jpeg_decompress_struct& decoder) {
  int64_t blocks = 0;
  for (int i = 0; i < decoder.num_components; ++i) {
    blocks += int64_t{decoder.comp_info[i].width_in_blocks} * decoder.comp_info[i].height_in_blocks;
  }
  return blocks;
}

/// Each scan of a progressive file goes over the whole picture, and takes a few bytes where it changes nothing: a small
/// file could keep a program busy for hours. Encoders write about ten.
void check_scans(const jpeg_decompress_struct& decoder, ErrorHandler& handler, int64_t scans) {
  constexpr int64_t kMostScans = 500;
  constexpr int64_t kAlways = int64_t{1} << 27;  // blocks looked at, in half a second or so
  constexpr int64_t kPerByte = 64;
  const int64_t most_blocks = kAlways + kPerByte * handler.file_bytes;
  const int64_t most = std::clamp<int64_t>(most_blocks / blocks_of(decoder), 1, kMostScans);
  if (scans <= most) return;
  std::snprintf(handler.message.data(), handler.message.size(), "more than %d scans%s", static_cast<int>(most),
                most < kMostScans ? " of so large a picture" : "");
  std::longjmp(handler.back, 1);
}

void limit_scans(j_common_ptr decoder) {
  const auto& known = *reinterpret_cast<j_decompress_ptr>(decoder);
  check_scans(known, handler_of(decoder), known.input_scan_number);
}

/// How many scans begin in what libjpeg has not read yet, behind the header of the first.
int64_t further_scans(const jpeg_decompress_struct& decoder) {
  int64_t scans = 0;
  const JOCTET* bytes = decoder.src->next_input_byte;
  for (size_t i = 1; i < decoder.src->bytes_in_buffer; ++i) scans += bytes[i - 1] == 0xFF && bytes[i] == 0xDA ? 1 : 0;
  return scans;
}

enum class Outcome { kDone, kTooLarge, kFailed };

/// Of a file of several scans all coefficients are kept until the picture is made, which takes their place.
void check_coefficients(const jpeg_decompress_struct& decoder, const Image& image, ErrorHandler& handler,
                        const std::filesystem::path& path) {
  if (jpeg_has_multiple_scans(const_cast<j_decompress_ptr>(&decoder)) == FALSE) return;
  const auto bytes = blocks_of(decoder) * static_cast<int64_t>(sizeof(JBLOCK));
  check_working_memory(path, bytes - image.height * image.width * 3, handler.file_bytes,
                       "the coefficients of several scans");
  check_scans(decoder, handler, 1 + further_scans(decoder));
}

/// One row of CMYK as RGB. Programs that write such files, Adobe's first, turn the inks around: 255 is none; Pillow
/// takes every file that way.
void read_inks(jpeg_decompress_struct& decoder, std::vector<uint8_t>& inks, uint8_t* rgb) {
  JSAMPROW row = inks.data();
  jpeg_read_scanlines(&decoder, &row, 1);
  for (uint8_t& ink : inks) ink = static_cast<uint8_t>(255 - ink);
  cmyk_to_rgb(inks.data(), decoder.output_width, rgb);
}

/// The C part. No object with a destructor may live here: a jump would leave it behind. `inks` is room for a row.
Outcome decode(jpeg_decompress_struct& decoder, ErrorHandler& handler, const std::vector<uint8_t>& bytes,
               const std::filesystem::path& path, const DecodeOptions& options, JpegCoefficients& coefficients,
               std::vector<uint8_t>& inks, Image& image) {
  if (setjmp(handler.back) != 0) return Outcome::kFailed;
  jpeg_create_decompress(&decoder);
  coefficients.install(decoder);
  decoder.progress = &handler.progress;
  jpeg_mem_src(&decoder, bytes.data(), bytes.size());
  jpeg_read_header(&decoder, TRUE);
  image.height = decoder.image_height;
  image.width = decoder.image_width;
  if (image.height < 1 || image.width < 1 || image.height > options.most_pixels / image.width)
    return Outcome::kTooLarge;
  check_unpacked_size(path, image.height * image.width * decoder.num_components, handler.file_bytes);
  check_coefficients(decoder, image, handler, path);
  const bool has_inks = decoder.jpeg_color_space == JCS_CMYK || decoder.jpeg_color_space == JCS_YCCK;
  decoder.out_color_space = has_inks ? JCS_CMYK : JCS_RGB;
  jpeg_start_decompress(&decoder);
  const auto row_bytes = static_cast<size_t>(image.width * 3);
  image.pixels.reserve(static_cast<size_t>(image.height) * row_bytes);
  if (has_inks) inks.resize(static_cast<size_t>(image.width * 4));
  while (decoder.output_scanline < decoder.output_height) {
    JSAMPROW row = add_row(image.pixels, row_bytes);
    if (has_inks) {
      read_inks(decoder, inks, row);
    } else {
      jpeg_read_scanlines(&decoder, &row, 1);
    }
  }
  jpeg_finish_decompress(&decoder);
  return Outcome::kDone;
}

}  // namespace

Image decode_jpeg(const std::vector<uint8_t>& bytes, const std::filesystem::path& path, const DecodeOptions& options) {
  ErrorHandler handler;
  handler.file_bytes = static_cast<int64_t>(bytes.size());
  JpegCoefficients coefficients;
  jpeg_decompress_struct decoder{};
  const std::unique_ptr<jpeg_decompress_struct, decltype(&jpeg_destroy_decompress)> owner(&decoder,
                                                                                          jpeg_destroy_decompress);
  decoder.err = jpeg_std_error(&handler.manager);
  handler.manager.error_exit = stop;
  handler.manager.emit_message = note;
  handler.progress.progress_monitor = limit_scans;
  Image image;
  std::vector<uint8_t> inks;
  const Outcome outcome = decode(decoder, handler, bytes, path, options, coefficients, inks, image);
  switch (outcome) {
    case Outcome::kFailed:
      throw DataError(path, std::string("not a valid JPEG file: ") + handler.message.data());
    case Outcome::kTooLarge:
      check_image_size(path, image.height, image.width, options);
      break;
    case Outcome::kDone:
      break;
  }
  return image;
}

}  // namespace ddp

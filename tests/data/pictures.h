// Made-up pictures, and their PNG and JPEG files.
#pragma once

#include <png.h>

#include <cstdio>
#include <cstdlib>
// libjpeg's header needs what <cstdio> declares.
#include <jpeglib.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

#include <ddprun/data/image.h>

namespace ddp::test {

/// Neighbours differ in every direction.
inline Image picture(int64_t height, int64_t width) {
  Image image{.height = height, .width = width};
  for (int64_t i = 0; i < height * width * 3; ++i) image.pixels.push_back(static_cast<uint8_t>(i * 31 + i / 11));
  return image;
}

/// What JPEG is made for.
inline Image smooth_picture(int64_t height, int64_t width) {
  Image image{.height = height, .width = width};
  for (int64_t i = 0; i < height * width * 3; ++i) {
    const double x = static_cast<double>(i / 3 % width) / 10;
    const double y = static_cast<double>(i / 3 / width) / 14;
    image.pixels.push_back(
        static_cast<uint8_t>(128 + 60 * std::sin(x) + 60 * std::cos(y + static_cast<double>(i % 3))));
  }
  return image;
}

/// As RGB, RGBA with an opacity that differs, or grey (the picture's first bytes).
inline std::string png(const Image& picture, png_uint_32 format) {
  std::string pixels;
  const size_t channels = PNG_IMAGE_SAMPLE_CHANNELS(format);
  for (size_t i = 0; i < static_cast<size_t>(picture.height * picture.width); ++i) {
    for (size_t c = 0; c < channels; ++c) {
      const bool is_opacity = c == 3;
      pixels.push_back(static_cast<char>(is_opacity ? i : picture.pixels[channels == 1 ? i : 3 * i + c]));
    }
  }
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.height = static_cast<png_uint_32>(picture.height);
  image.width = static_cast<png_uint_32>(picture.width);
  image.format = format;
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(image);
  std::string file(size, '\0');
  if (png_image_write_to_memory(&image, file.data(), &size, 0, pixels.data(), 0, nullptr) == 0) {
    throw std::runtime_error(image.message);
  }
  file.resize(size);
  return file;
}

namespace detail {

inline std::string compressed(const uint8_t* pixels, int64_t height, int64_t width, int channels, J_COLOR_SPACE space,
                              J_COLOR_SPACE stored, int quality, const std::vector<jpeg_scan_info>& scans,
                              int across = 2, int down = 2) {
  jpeg_error_mgr errors{};
  jpeg_compress_struct encoder{};
  encoder.err = jpeg_std_error(&errors);
  jpeg_create_compress(&encoder);
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&encoder, &bytes, &size);
  encoder.image_height = static_cast<JDIMENSION>(height);
  encoder.image_width = static_cast<JDIMENSION>(width);
  encoder.input_components = channels;
  encoder.in_color_space = space;
  jpeg_set_defaults(&encoder);
  jpeg_set_colorspace(&encoder, stored);
  jpeg_set_quality(&encoder, quality, TRUE);
  if (stored == JCS_YCbCr) {
    encoder.comp_info[0].h_samp_factor = across;
    encoder.comp_info[0].v_samp_factor = down;
  }
  if (!scans.empty()) {
    encoder.scan_info = scans.data();
    encoder.num_scans = static_cast<int>(scans.size());
  }
  jpeg_start_compress(&encoder, TRUE);
  while (encoder.next_scanline < encoder.image_height) {
    auto* row = const_cast<JSAMPROW>(pixels + static_cast<int64_t>(encoder.next_scanline) * width * channels);
    jpeg_write_scanlines(&encoder, &row, 1);
  }
  jpeg_finish_compress(&encoder);
  std::string file(reinterpret_cast<char*>(bytes), size);
  jpeg_destroy_compress(&encoder);
  std::free(bytes);
  return file;
}

}  // namespace detail

/// A progressive file where `scans` says what comes when. A sample of colour for so many pixels across and down.
inline std::string jpeg(const Image& picture, int quality, const std::vector<jpeg_scan_info>& scans = {},
                        int across = 2, int down = 2) {
  return detail::compressed(picture.pixels.data(), picture.height, picture.width, 3, JCS_RGB, JCS_YCbCr, quality, scans,
                            across, down);
}

/// The picture's colours in inks, with no black, turned around as Adobe's programs do; stored as they are or as YCCK.
inline std::string jpeg_in_inks(const Image& picture, int quality, bool is_ycck) {
  std::vector<uint8_t> inks;
  for (size_t i = 0; i < picture.pixels.size(); i += 3) {
    inks.insert(inks.end(), &picture.pixels[i], &picture.pixels[i] + 3);
    inks.push_back(255);
  }
  return detail::compressed(inks.data(), picture.height, picture.width, 4, JCS_CMYK, is_ycck ? JCS_YCCK : JCS_CMYK,
                            quality, {});
}

/// The means of all blocks, then each colour's other frequencies in bands of `band`, with their last `bits` bits one by
/// one.
inline std::vector<jpeg_scan_info> progressive_scans(int band, int bits) {
  std::vector<jpeg_scan_info> scans = {{3, {0, 1, 2}, 0, 0, 0, 0}};
  for (int bit = bits; bit >= 0; --bit) {
    for (int colour = 0; colour < 3; ++colour) {
      for (int first = 1; first < 64; first += band)
        scans.push_back({1, {colour}, first, std::min(first + band - 1, 63), bit == bits ? 0 : bit + 1, bit});
    }
  }
  return scans;
}

}  // namespace ddp::test

// The formats of picture files. Each has a function and an entry in a table. See decode_image().
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string_view>
#include <vector>

#include <ddprun/data/image.h>

#include "data/formats/image_format.h"

namespace ddp {

/// The part of a picture that is decoded: a box within the picture after its reduction to 1/reduction of its size
/// (rounded up).
struct DecodedBox {
  Box box{};
  int reduction = 1;       ///< 1, 2, 4 or 8
  bool reads_all = false;  ///< also reads the data after the box, so that damage in it is an error
};

/// A picture of which at least a box is in memory.
struct DecodedPart {
  Image pixels{};
  int64_t top = 0;   ///< the row of the picture at which the pixels begin
  int64_t left = 0;  ///< the column at which the pixels begin
};

/// Like decode_jpeg(), but only for the box that `choose` returns for the height and width of the picture.
DecodedPart decode_jpeg_box(const std::vector<uint8_t>& bytes, const std::filesystem::path& path,
                            const DecodeOptions& options,
                            const std::function<DecodedBox(int64_t height, int64_t width)>& choose);

Image decode_jpeg(const std::vector<uint8_t>& bytes, const std::filesystem::path& path, const DecodeOptions& options);
Image decode_png(const std::vector<uint8_t>& bytes, const std::filesystem::path& path, const DecodeOptions& options);
Image decode_bmp(const std::vector<uint8_t>& bytes, const std::filesystem::path& path, const DecodeOptions& options);
Image decode_pnm(const std::vector<uint8_t>& bytes, const std::filesystem::path& path, const DecodeOptions& options);
Image decode_gif(const std::vector<uint8_t>& bytes, const std::filesystem::path& path, const DecodeOptions& options);
Image decode_tiff(const std::vector<uint8_t>& bytes, const std::filesystem::path& path, const DecodeOptions& options);
Image decode_webp(const std::vector<uint8_t>& bytes, const std::filesystem::path& path, const DecodeOptions& options);
Image decode_avif(const std::vector<uint8_t>& bytes, const std::filesystem::path& path, const DecodeOptions& options);
Image decode_jpeg2000(const std::vector<uint8_t>& bytes, const std::filesystem::path& path,
                      const DecodeOptions& options);

inline bool is_pnm(std::string_view bytes) {
  constexpr std::string_view kSpaces = " \t\n\v\f\r";
  return bytes.size() >= 3 && bytes[0] == 'P' && bytes[1] >= '1' && bytes[1] <= '6' &&
         kSpaces.find(bytes[2]) != std::string_view::npos;
}

/// Recognizes both byte orders, and BigTIFF.
inline bool is_tiff(std::string_view bytes) {
  using namespace std::string_view_literals;
  return bytes.starts_with("II*\0"sv) || bytes.starts_with("MM\0*"sv) || bytes.starts_with("II+\0"sv) ||
         bytes.starts_with("MM\0+"sv);
}

/// Recognizes a single picture or a sequence: the file begins with an "ftyp" box that contains the brand of AVIF.
inline bool is_avif(std::string_view bytes) {
  return bytes.size() >= 12 && bytes.substr(4, 4) == "ftyp" &&
         (bytes.substr(8, 4) == "avif" || bytes.substr(8, 4) == "avis");
}

/// Recognizes boxes (.jp2) and a bare codestream (.j2k).
inline bool is_jpeg2000(std::string_view bytes) {
  using namespace std::string_view_literals;
  return bytes.starts_with("\0\0\0\x0CjP  \r\n\x87\n"sv) || bytes.starts_with("\xFF\x4F\xFF\x51"sv);
}

struct PictureFormat {
  ImageFormat format;
  std::string_view name;
  bool (*is_it)(std::string_view first_bytes);
  /// null if this build lacks `library`
  Image (*decode)(const std::vector<uint8_t>& bytes, const std::filesystem::path& path, const DecodeOptions& options);
  /// The extensions that image folders accept: those in IMG_EXTENSIONS of torchvision.
  std::array<std::string_view, 2> extensions{};
  std::string_view library{};  ///< such as "libtiff 4.5"
  std::string_view package{};  ///< such as "libtiff"; needed as a development package
  std::string_view fedora{};   ///< the name of that package in Fedora, if it differs
};

#ifdef DDPRUN_HAS_TIFF
inline constexpr auto* kDecodeTiff = decode_tiff;
#else
inline constexpr decltype(&decode_tiff) kDecodeTiff = nullptr;
#endif
#ifdef DDPRUN_HAS_WEBP
inline constexpr auto* kDecodeWebP = decode_webp;
#else
inline constexpr decltype(&decode_webp) kDecodeWebP = nullptr;
#endif

#ifdef DDPRUN_HAS_AVIF
inline constexpr auto* kDecodeAvif = decode_avif;
#else
inline constexpr decltype(&decode_avif) kDecodeAvif = nullptr;
#endif
#ifdef DDPRUN_HAS_JPEG2000
inline constexpr auto* kDecodeJpeg2000 = decode_jpeg2000;
#else
inline constexpr decltype(&decode_jpeg2000) kDecodeJpeg2000 = nullptr;
#endif

inline constexpr PictureFormat kPictureFormats[] = {
    {ImageFormat::kJpeg,
     "JPEG",
     [](std::string_view b) { return b.starts_with("\xFF\xD8\xFF"); },
     decode_jpeg,
     {".jpg", ".jpeg"}},
    {ImageFormat::kPng,
     "PNG",
     [](std::string_view b) { return b.starts_with("\x89PNG\r\n\x1A\n"); },
     decode_png,
     {".png"}},
    {ImageFormat::kBmp, "BMP", [](std::string_view b) { return b.starts_with("BM"); }, decode_bmp, {".bmp"}},
    {ImageFormat::kPnm, "PPM, PGM", is_pnm, decode_pnm, {".ppm", ".pgm"}},
    {ImageFormat::kGif, "GIF", [](std::string_view b) { return b.starts_with("GIF87a") || b.starts_with("GIF89a"); },
     decode_gif},
    {ImageFormat::kTiff, "TIFF", is_tiff, kDecodeTiff, {".tif", ".tiff"}, "libtiff 4.5", "libtiff"},
    {ImageFormat::kWebP,
     "WebP",
     [](std::string_view b) { return b.size() >= 12 && b.starts_with("RIFF") && b.substr(8, 4) == "WEBP"; },
     kDecodeWebP,
     {".webp"},
     "libwebp",
     "libwebp"},
    // These have no extensions here, because torchvision does not accept them: image folders leave them out.
    {ImageFormat::kAvif, "AVIF", is_avif, kDecodeAvif, {}, "libavif", "libavif"},
    {ImageFormat::kJpeg2000, "JPEG 2000", is_jpeg2000, kDecodeJpeg2000, {}, "OpenJPEG", "libopenjp2-7", "openjpeg2"},
};

/// Throws DataError if a picture of this size may not be decoded.
void check_image_size(const std::filesystem::path& path, int64_t height, int64_t width, const DecodeOptions& options);

/// Converts `pixels` pixels of cyan, magenta, yellow and black (255 is full ink) to RGB as Pillow does: 255 - black,
/// minus the fraction of it given by the ink of the colour, rounded.
void cmyk_to_rgb(const uint8_t* inks, int64_t pixels, uint8_t* rgb);

}  // namespace ddp

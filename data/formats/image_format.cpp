#include "ddprun/data/image_format.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>
#include <utility>

namespace ddp {
namespace {

using namespace std::string_view_literals;

struct Signature {
  std::string_view bytes;
  ImageFormat format;
};
constexpr std::array kSignatures = {
    Signature{"\xFF\xD8\xFF"sv, ImageFormat::kJpeg},
    Signature{"\x89PNG\r\n\x1A\n"sv, ImageFormat::kPng},
    Signature{"BM"sv, ImageFormat::kBmp},
    Signature{"II*\0"sv, ImageFormat::kTiff},
    Signature{"MM\0*"sv, ImageFormat::kTiff},
    Signature{"II+\0"sv, ImageFormat::kTiff},  // BigTIFF
    Signature{"MM\0+"sv, ImageFormat::kTiff},
};

constexpr std::array<std::pair<std::string_view, ImageFormat>, 9> kExtensions = {{
    {".jpg", ImageFormat::kJpeg},
    {".jpeg", ImageFormat::kJpeg},
    {".png", ImageFormat::kPng},
    {".ppm", ImageFormat::kPnm},
    {".bmp", ImageFormat::kBmp},
    {".pgm", ImageFormat::kPnm},
    {".tif", ImageFormat::kTiff},
    {".tiff", ImageFormat::kTiff},
    {".webp", ImageFormat::kWebP},
}};

}  // namespace

ImageFormat image_format(std::span<const uint8_t> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), std::min<size_t>(bytes.size(), 12));
  for (const Signature& signature : kSignatures) {
    if (text.starts_with(signature.bytes)) return signature.format;
  }
  if (text.starts_with("RIFF") && text.size() == 12 && text.ends_with("WEBP")) return ImageFormat::kWebP;
  if (text.size() >= 3 && text[0] == 'P' && text[1] >= '1' && text[1] <= '6' &&
      std::isspace(static_cast<unsigned char>(text[2])) != 0) {
    return ImageFormat::kPnm;
  }
  return ImageFormat::kUnknown;
}

ImageFormat image_format_of_name(const std::filesystem::path& file) {
  std::string extension = file.extension().string();
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const auto* found =
      std::find_if(kExtensions.begin(), kExtensions.end(), [&](const auto& entry) { return entry.first == extension; });
  return found == kExtensions.end() ? ImageFormat::kUnknown : found->second;
}

std::string how_to_read(ImageFormat format) {
  const bool is_tiff = format == ImageFormat::kTiff;
  return std::string("this ddprun was built without ") + (is_tiff ? "libtiff 4.5" : "libwebp") + ": install " +
         (is_tiff ? "libtiff-dev (Debian, Ubuntu) or libtiff-devel" : "libwebp-dev (Debian, Ubuntu) or libwebp-devel") +
         " (Fedora) and build it again";
}

}  // namespace ddp

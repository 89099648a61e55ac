// The kinds of picture files: distinguished by their first bytes, and by the names that torchvision takes for pictures.
// No LibTorch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace ddp {

enum class ImageFormat { kUnknown, kJpeg, kPng, kBmp, kPnm, kTiff, kWebP, kGif, kAvif, kJpeg2000 };

/// What a file's first bytes say; 12 are enough.
ImageFormat image_format(std::span<const uint8_t> bytes);

/// As messages name it: "TIFF".
std::string format_name(ImageFormat format);

/// What a file's name says, in capitals too: torchvision's IMG_EXTENSIONS (.jpg .jpeg .png .ppm .bmp .pgm .tif .tiff
/// .webp), kUnknown for all others.
ImageFormat image_format_of_name(const std::filesystem::path& file);

/// Whether this build reads the format: TIFF, WebP, AVIF and JPEG 2000 take libraries that may have been missing.
bool can_read(ImageFormat format);

/// For a format that this build does not read: what is missing and what to install, without a full stop.
std::string how_to_read(ImageFormat format);

}  // namespace ddp

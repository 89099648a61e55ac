// The formats of picture files, recognized by their first bytes or by the file name extensions that torchvision
// accepts. Does not use LibTorch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace ddp {

enum class ImageFormat { kUnknown, kJpeg, kPng, kBmp, kPnm, kTiff, kWebP, kGif, kAvif, kJpeg2000 };

/// Determines the format from the first bytes of a file; 12 bytes are enough.
ImageFormat image_format(std::span<const uint8_t> bytes);

/// Returns the name used in messages, such as "TIFF".
std::string format_name(ImageFormat format);

/// Determines the format from the file name, ignoring case. Recognizes the IMG_EXTENSIONS of torchvision (.jpg .jpeg
/// .png .ppm .bmp .pgm .tif .tiff .webp); returns kUnknown for all others.
ImageFormat image_format_of_name(const std::filesystem::path& file);

/// Whether this build can read the format: TIFF, WebP, AVIF and JPEG 2000 need libraries that may have been missing.
bool can_read(ImageFormat format);

/// For a format that this build cannot read: says what is missing and what to install, without a full stop at the end.
std::string reading_advice(ImageFormat format);

}  // namespace ddp

// JPEG files by libjpeg-turbo.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "data/image.h"

namespace ddp {

/// See decode_image().
Image decode_jpeg(const std::vector<uint8_t>& bytes, const std::filesystem::path& path, const DecodeOptions& options);

/// Throws DataError unless a picture of this size may be decoded.
void check_image_size(const std::filesystem::path& path, int64_t height, int64_t width, const DecodeOptions& options);

}  // namespace ddp

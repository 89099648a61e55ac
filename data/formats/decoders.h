// One function for each format of picture files. See decode_image().
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include <ddprun/data/image.h>

namespace ddp {

Image decode_jpeg(const std::vector<uint8_t>& bytes, const std::filesystem::path& path, const DecodeOptions& options);
Image decode_png(const std::vector<uint8_t>& bytes, const std::filesystem::path& path, const DecodeOptions& options);
Image decode_bmp(const std::vector<uint8_t>& bytes, const std::filesystem::path& path, const DecodeOptions& options);
Image decode_pnm(const std::vector<uint8_t>& bytes, const std::filesystem::path& path, const DecodeOptions& options);
Image decode_tiff(const std::vector<uint8_t>& bytes, const std::filesystem::path& path, const DecodeOptions& options);
Image decode_webp(const std::vector<uint8_t>& bytes, const std::filesystem::path& path, const DecodeOptions& options);

/// Throws DataError unless a picture of this size may be decoded.
void check_image_size(const std::filesystem::path& path, int64_t height, int64_t width, const DecodeOptions& options);

/// RGB of `pixels` inks of cyan, magenta, yellow and black (255 is most), as Pillow converts them: 255 - black, less
/// the part of it that the colour's ink takes, rounded.
void cmyk_to_rgb(const uint8_t* inks, int64_t pixels, uint8_t* rgb);

}  // namespace ddp

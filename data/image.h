// Pictures in memory and from JPEG and PNG files. No LibTorch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace ddp {

/// 8-bit RGB pixels in memory order (height, width, 3).
struct Image {
  int64_t height = 0;
  int64_t width = 0;
  std::vector<uint8_t> pixels{};
};

struct DecodeOptions {
  /// A file that claims more pixels than this is refused before memory for them is taken.
  int64_t most_pixels = int64_t{1} << 28;
};

/// Reads a JPEG or PNG file, told apart by its first bytes. Grey becomes RGB, opacity is dropped (as Pillow's
/// convert("RGB") does), 16-bit PNGs are cut to 8 bits; JPEGs in CMYK are refused. JPEG orientation tags are not
/// followed, as torchvision doesn't. Throws DataError, one line that names the file, for anything else: another format,
/// a damaged or cut file, too many pixels.
Image read_image(const std::filesystem::path& path, const DecodeOptions& options = {});

/// The same from a file's bytes; `path` is for messages.
Image decode_image(const std::vector<uint8_t>& bytes, const std::filesystem::path& path,
                   const DecodeOptions& options = {});

}  // namespace ddp

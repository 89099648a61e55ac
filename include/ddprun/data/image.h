// Pictures in memory and from files. No LibTorch.
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

/// Reads a JPEG, PNG, BMP, PNM (PBM, PGM, PPM), GIF, TIFF or WebP file, told apart by its first bytes; the last two
/// where this build has libtiff and libwebp, and of several pictures the first. Gives what Pillow's convert("RGB")
/// does: grey, palettes and CMYK become RGB, opacity is dropped, and what a file says about gamma and colour spaces
/// changes nothing. Samples of 16 bits are cut to 8, grey ones as well, where Pillow makes 255 of all above. JPEG
/// orientation tags are not followed, as torchvision doesn't, TIFF's are. Throws DataError, one line that names the
/// file, for anything else: another format, a damaged or cut file, too many pixels.
Image read_image(const std::filesystem::path& path, const DecodeOptions& options = {});

/// The same from a file's bytes; `path` is for messages.
Image decode_image(const std::vector<uint8_t>& bytes, const std::filesystem::path& path,
                   const DecodeOptions& options = {});

}  // namespace ddp

// What stands before the pixels of a BMP file. No LibTorch.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <vector>

namespace ddp {

enum class BmpCompression : uint32_t { kNone = 0, kRle8 = 1, kRle4 = 2, kBitFields = 3 };

struct BmpHeader {
  int64_t height = 0;
  int64_t width = 0;
  bool is_top_down = false;
  int bits = 0;  ///< for a pixel: 1, 4, 8 (indices into the palette), 16, 24 or 32
  BmpCompression compression{};
  std::array<uint32_t, 3> masks{};                    ///< of red, green and blue; 16 and 32 bits
  std::array<std::array<uint8_t, 3>, 256> palette{};  ///< red, green, blue; black where the file has none
  size_t pixels_at = 0;                               ///< byte of the file
};

/// Reads Windows' headers (40 to 124 bytes) and OS/2's (12 and 64). Throws DataError for a header that is damaged, cut
/// short, or of a kind that nobody reads.
BmpHeader read_bmp_header(const std::vector<uint8_t>& bytes, const std::filesystem::path& path);

}  // namespace ddp

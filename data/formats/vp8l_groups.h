// How many groups of Huffman codes a picture of VP8L, WebP's lossless format, has (RFC 9649, section 3). A group takes
// 20 bits in a file and 6 KB of tables in libwebp: a small file may ask for hundreds of megabytes. No LibTorch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace ddp {

/// Encoders make at most 2,600 (libwebp's MAX_HUFF_IMAGE_SIZE).
inline constexpr int64_t kMostVp8lGroups = 4096;

struct Vp8lSize {
  int64_t width = 0;   // pixels
  int64_t height = 0;  // pixels
};

/// Groups of the image stream in `bytes`, which begins after VP8L's header of five bytes, or after the first byte of an
/// ALPH chunk. Nothing where the stream is damaged or truncated: libwebp refuses such a stream before it has tables.
std::optional<int64_t> count_vp8l_groups(const uint8_t* bytes, size_t size, Vp8lSize picture);

/// The largest number of groups of a stream among the chunks VP8L and ALPH of a WebP file, or of a frame of one.
/// `picture` is the size of a picture whose chunks do not say it.
int64_t most_webp_groups(const uint8_t* bytes, size_t size, Vp8lSize picture);

}  // namespace ddp

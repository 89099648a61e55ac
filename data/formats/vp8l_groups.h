// Counts the groups of Huffman codes in a picture of VP8L, the lossless format of WebP (RFC 9649, section 3). A group
// needs 20 bits in a file but 6 KB of tables in libwebp, so a small file could request hundreds of megabytes. Does not
// use LibTorch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace ddp {

/// Encoders write at most 2,600 groups (MAX_HUFF_IMAGE_SIZE of libwebp).
inline constexpr int64_t kMaxVp8lGroups = 4096;

struct Vp8lSize {
  int64_t width = 0;   // pixels
  int64_t height = 0;  // pixels
};

/// Counts the groups of the image stream in `bytes`, which begins after the five-byte header of VP8L, or after the
/// first byte of an ALPH chunk. Returns nullopt if the stream is damaged or truncated: libwebp rejects such a stream
/// before it allocates tables.
std::optional<int64_t> count_vp8l_groups(const uint8_t* bytes, size_t size, Vp8lSize picture);

/// Returns the largest number of groups in any VP8L or ALPH chunk of a WebP file or of one of its frames. `picture` is
/// the size of the picture, for chunks that do not contain it.
int64_t max_webp_groups(const uint8_t* bytes, size_t size, Vp8lSize picture);

}  // namespace ddp

// Converts pixels that are colour indices to RGB. Does not use LibTorch.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>

namespace ddp {

/// Red, green and blue for each index; the fourth byte is not used.
using ColorTable = std::array<std::array<uint8_t, 4>, 256>;

/// Writes the colours of `count` packed indices of kBits bits each (1, 2 or 4 with the highest bits first, or 8). The
/// pixels are written `step` pixels apart.
template <int kBits>
void put_colors(const ColorTable& colors, const uint8_t* numbers, uint8_t* rgb, int64_t step, int64_t count) {
  constexpr int kPixelsPerByte = 8 / kBits;
  constexpr unsigned kMask = (1U << kBits) - 1;
  for (int64_t i = 0; i < count; ++i, rgb += 3 * step) {
    const unsigned number = numbers[i / kPixelsPerByte] >> (8 - kBits - i % kPixelsPerByte * kBits) & kMask;
    std::memcpy(rgb, colors[number].data(), 3);
  }
}

inline void put_colors(const ColorTable& colors, const uint8_t* numbers, int bits, uint8_t* rgb, int64_t step,
                       int64_t count) {
  if (bits == 1) return put_colors<1>(colors, numbers, rgb, step, count);
  if (bits == 2) return put_colors<2>(colors, numbers, rgb, step, count);
  if (bits == 4) return put_colors<4>(colors, numbers, rgb, step, count);
  put_colors<8>(colors, numbers, rgb, step, count);
}

}  // namespace ddp

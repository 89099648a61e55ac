// CRC-32C (Castagnoli), the checksum of checkpoint and event files. Uses the CRC instruction of the processor if there
// is one. Does not use LibTorch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace ddp {

/// Continues the checksum `crc` (initially 0) with `size` bytes. Passing data in several pieces gives the checksum of
/// the whole.
uint32_t crc32c(const void* data, size_t size, uint32_t crc = 0);

inline uint32_t crc32c(std::string_view bytes) {
  return crc32c(bytes.data(), bytes.size());
}

/// The checksum of two concatenated pieces, computed from their checksums and the length of the second piece.
uint32_t crc32c_combine(uint32_t first, uint32_t second, uint64_t second_size);

/// The same checksum computed with tables only, for processors without the instruction.
uint32_t crc32c_portable(const void* data, size_t size, uint32_t crc = 0);

}  // namespace ddp

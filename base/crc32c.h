// CRC-32C (Castagnoli), the checksum of checkpoint and event files: the processor's own instruction where it has one.
// No LibTorch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace ddp {

/// Continues the checksum `crc` (0 to begin) with `size` bytes, so that pieces in order give the checksum of the whole.
uint32_t crc32c(const void* data, size_t size, uint32_t crc = 0);

inline uint32_t crc32c(std::string_view bytes) {
  return crc32c(bytes.data(), bytes.size());
}

/// The checksum of two pieces laid end to end, from the checksum of each and the length of the second.
uint32_t crc32c_combine(uint32_t first, uint32_t second, uint64_t second_size);

/// The same checksum by tables alone, for processors without the instruction.
uint32_t crc32c_portable(const void* data, size_t size, uint32_t crc = 0);

}  // namespace ddp

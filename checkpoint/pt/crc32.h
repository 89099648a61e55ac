// CRC-32 as zip files use it. No LibTorch.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ddp::pt {

/// Continues the checksum `crc` (0 to begin) with `size` bytes.
uint32_t crc32(const void* data, size_t size, uint32_t crc = 0);

/// The same by tables alone, for processors without carry-less multiplication.
uint32_t crc32_portable(const void* data, size_t size, uint32_t crc = 0);

}  // namespace ddp::pt

// Tables for a reflected 32-bit CRC that processes eight bytes per step (Kounavis and Berry, "A systematic approach to
// building high performance software-based CRC generators", 2005). Does not use LibTorch.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace ddp {

class CrcTables {
 public:
  /// `polynomial` must be given in reversed bit order.
  constexpr explicit CrcTables(uint32_t polynomial) {
    for (uint32_t byte = 0; byte < 256; ++byte) {
      uint32_t crc = byte;
      for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? polynomial : 0);
      tables_[0][byte] = crc;
    }
    for (size_t i = 1; i < tables_.size(); ++i) {
      for (size_t byte = 0; byte < 256; ++byte) {
        const auto before = tables_[i - 1][byte];
        tables_[i][byte] = (before >> 8) ^ tables_[0][before & 255];
      }
    }
  }

  /// Continues the checksum `crc` (initially 0) with `size` bytes.
  uint32_t update(uint32_t crc, const void* data, size_t size) const {
    static_assert(std::endian::native == std::endian::little);
    const auto* bytes = static_cast<const unsigned char*>(data);
    crc = ~crc;
    for (; size >= 8; size -= 8, bytes += 8) {
      uint64_t word = 0;
      std::memcpy(&word, bytes, 8);
      word ^= crc;
      crc = 0;
      for (size_t i = 0; i < 8; ++i) crc ^= tables_[7 - i][(word >> (8 * i)) & 255];
    }
    for (; size > 0; --size, ++bytes) crc = (crc >> 8) ^ tables_[0][(crc ^ *bytes) & 255];
    return ~crc;
  }

 private:
  std::array<std::array<uint32_t, 256>, 8> tables_{};
};

}  // namespace ddp

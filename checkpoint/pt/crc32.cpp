#include "checkpoint/pt/crc32.h"

#include "checkpoint/storage/crc_tables.h"

namespace ddp::pt {

uint32_t crc32(const void* data, size_t size, uint32_t crc) {
  static constexpr storage::CrcTables kTables(0xedb88320);
  return kTables.update(crc, data, size);
}

}  // namespace ddp::pt

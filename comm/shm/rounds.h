// How a collective of shared memory divides what it moves, and moves it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "comm/shm/layout.h"

namespace ddp::shm {

// Up to here the bytes stand beside a rank's signature, and one wait does for both.
inline constexpr size_t kTiny = sizeof(SlotHeader::tiny);

inline uint64_t rounds_of(size_t bytes, size_t chunk) {
  return std::max<uint64_t>(1, (bytes + chunk - 1) / chunk);
}

inline void copy_bytes(std::byte* to, const std::byte* from, size_t bytes) {
  if (bytes > 0 && to != from) std::memcpy(to, from, bytes);
}

}  // namespace ddp::shm

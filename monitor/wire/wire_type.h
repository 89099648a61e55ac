// How a field of a protocol-buffer message is stored.
#pragma once

#include <cstdint>

namespace ddp::wire {

enum class WireType : uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

}  // namespace ddp::wire

// Internal: what a rank has called, for messages. No LibTorch.
#pragma once

#include <string>

#include "comm/shm/layout.h"

namespace ddp::shm {

enum class Kind : uint8_t {
  kNone,
  kAllReduce,
  kReduce,
  kReduceScatter,
  kBroadcast,
  kAllGather,
  kGather,
  kScatter,
  kAllToAll,
  kBarrier
};

/// "all_reduce of 4096 bytes", "broadcast of 8 bytes from rank 2".
std::string text_of(const Signature& signature);

}  // namespace ddp::shm

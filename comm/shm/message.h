// Internal: messages between two ranks. No LibTorch.
#pragma once

#include <cstdint>

#include "comm/shm/operation.h"

namespace ddp::shm {

class Message final : public Operation {
 public:
  enum class Direction { kSend, kReceive };
  static constexpr int kAnyRank = -1;

  Message(Direction direction, int peer, uint64_t tag, std::byte* data, size_t bytes)
      : direction_(direction), peer_(peer), tag_(tag), data_(data), bytes_(bytes) {}

  Direction direction() const { return direction_; }
  /// To or from whom; for a receipt from any rank kAnyRank until one was found.
  int peer() const { return peer_; }
  uint64_t tag() const { return tag_; }
  size_t bytes() const { return bytes_; }

 private:
  friend class Mailbox;

  const Direction direction_;
  int peer_;
  const uint64_t tag_;
  std::byte* const data_;
  const size_t bytes_;
  size_t done_ = 0;  // bytes
};

using MessagePtr = std::shared_ptr<Message>;

}  // namespace ddp::shm

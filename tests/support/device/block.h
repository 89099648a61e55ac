// A piece of device memory that tensors hold.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "tests/support/device/engine.h"

namespace ddp::test::device {

struct Block {
  char* shown = nullptr;
  size_t bytes = 0;  // asked for
  size_t room = 0;
  StreamKey stream{};
  std::map<StreamKey, bool> other_users{};  // record_stream
  std::atomic<bool> is_fresh = true;        // nothing has used it: the first kernel finds it full of 0xFF or 0xAA
  uint64_t number = 0;

  /// What messages call it.
  std::string name() const {
    return std::to_string(bytes) + " bytes, allocation " + std::to_string(number) + ", of stream " +
           std::to_string(stream.id) + " of device " + std::to_string(stream.device);
  }
};

}  // namespace ddp::test::device

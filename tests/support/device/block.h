// A piece of device memory that tensors hold.
#pragma once

#include <cstddef>
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
  bool is_fresh = true;                     // nothing has used it: the first kernel finds it full of 0xFF
  uint64_t number = 0;
};

}  // namespace ddp::test::device

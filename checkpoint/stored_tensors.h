// Tensors by name that come from a file of whatever format, not yet in any model.
#pragma once

#include <string>

#include "checkpoint/safetensors.h"

namespace ddp {

struct StoredTensors {
  std::string source{};  ///< the file, for messages
  TensorMap tensors{};   ///< on the CPU; they may refer to a mapped file, which they keep open
  Metadata metadata{};
};

}  // namespace ddp

// Tensors by name that come from a file of whatever format, not yet in any model.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <ddprun/checkpoint/safetensors.h>

namespace ddp {

struct StoredTensors {
  std::string source{};  ///< the file, for messages
  TensorMap tensors{};   ///< on the CPU; they may refer to a mapped file, which they keep open
  Metadata metadata{};
  /// Names of a .pt file whose tensors or objects cannot be read here, and what they are: "a sparse tensor …".
  std::map<std::string, std::string> skipped{};
  /// Keys of a .pt file below which there are tensors, for LoadOptions::key; the first few.
  std::vector<std::string> entries{};
};

}  // namespace ddp

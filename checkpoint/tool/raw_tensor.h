// A tensor of a source: its bytes in memory, or where they are in files. No LibTorch.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <ddprun/checkpoint/safetensors_header.h>

#include "checkpoint/folders/sharded_folder.h"

namespace ddp::tool {

/// A tensor, whose elements are contiguous in memory (in a mapped file, or in TensorSource), or in chunks in files.
struct RawTensor {
  std::string name{};
  std::string dtype{};  ///< as in Python, without "torch."
  std::vector<int64_t> sizes{};
  std::string_view bytes{};                        ///< empty where the elements are in chunks
  const ChunkedPart* part = nullptr;               ///< null where they are in memory
  const shards::CatalogTensor* chunked = nullptr;  ///< of `part`
  uint64_t chunked_bytes = 0;                      ///< of all chunks' elements

  uint64_t size() const { return part != nullptr ? chunked_bytes : bytes.size(); }
};

struct RawFile {
  std::vector<RawTensor> tensors{};
  Metadata metadata{};
  std::map<std::string, std::string> skipped{};  ///< names that are not read, and what they are
  std::vector<std::string> entries{};            ///< of a .pt file: keys below which there are tensors
  /// Of a .pt file: it has no model under the usual keys, and the tensors are those of the dicts in its own dict.
  bool is_nested = false;
};

}  // namespace ddp::tool

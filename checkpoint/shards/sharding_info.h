// Where the chunks of a safetensors file lie in their tensors: the JSON that torch.distributed.checkpoint's
// HuggingFaceStorageWriter puts into the header's metadata, with the tensors' shapes. Format only; no LibTorch.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "checkpoint/shards/dim_vector.h"

namespace ddp::shards {

/// The metadata key of a header under which it is stored.
inline constexpr const char* kShardingInfo = "DCP_SHARDING_INFO";

struct ChunkPlace {
  std::optional<DimVector> offsets{};  ///< of its first element
  std::optional<DimVector> shape{};    ///< of the whole tensor; Python does not write it
  bool is_valid = true;                ///< false where it or one of these is there twice or of another type
};

/// By tensor. Memory is a small multiple of the text. Throws std::invalid_argument for text that is not a JSON object.
std::unordered_map<std::string, ChunkPlace> parse_sharding_info(std::string_view text);

/// Adds a place to text that is begun with "" and ended by end_sharding_info(). Throws std::invalid_argument for a name
/// that is not UTF-8.
void append_place(std::string& text, const std::string& name, const DimVector& offsets, const DimVector& shape);
void end_sharding_info(std::string& text);

}  // namespace ddp::shards

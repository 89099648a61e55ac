// The index of a model in several files, as Hugging Face writes it: model.safetensors.index.json. No LibTorch.
#pragma once

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <string_view>

namespace ddp {

/// {"weight_map": {"fc.weight": "model-00001-of-00002.safetensors", …}}: names of tensors by the file that holds them.
using ShardedIndex = std::map<std::string, std::set<std::string>>;

/// Throws std::invalid_argument for other text, and for a file that would lie outside the index's folder.
ShardedIndex parse_sharded_index(std::string_view text);

/// Whether `path` names such an index.
bool is_sharded_index(const std::filesystem::path& path);

/// The file that stands for a folder with a model in it: its index, or else model.safetensors or pytorch_model.bin.
/// Throws std::runtime_error when it has none.
std::filesystem::path model_in_folder(const std::filesystem::path& folder);

}  // namespace ddp

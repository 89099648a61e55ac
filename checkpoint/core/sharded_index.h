// The index of a model in several files, as Hugging Face writes it: model.safetensors.index.json. No LibTorch.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>

namespace ddp {

/// {"weight_map": {"fc.weight": "model-00001-of-00002.safetensors", …}}: names of tensors by the file that holds them.
using ShardedIndex = std::map<std::string, std::set<std::string>>;

/// Throws std::invalid_argument for other text, for a file that would lie outside the index's folder, and for one that
/// is an index itself.
ShardedIndex parse_sharded_index(std::string_view text);

/// Whether `path` names such an index.
bool is_sharded_index(const std::filesystem::path& path);

/// The file that stands for a folder with a model in it: its index, or else model.safetensors or pytorch_model.bin.
std::optional<std::filesystem::path> find_model_in_folder(const std::filesystem::path& folder);

/// The same. Throws std::runtime_error when the entry does not exist.
std::filesystem::path model_in_folder(const std::filesystem::path& folder);

}  // namespace ddp

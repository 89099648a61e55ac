// The safetensors files of a checkpoint that several ranks have written: their names, and where the chunks lie in the
// tensors, which is in each header as torch.distributed.checkpoint's HuggingFaceStorageReader reads it. No LibTorch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ddprun/checkpoint/safetensors_header.h>
#include <ddprun/detail/checkpoint/storage/file_system.h>

#include "checkpoint/shards/block_checksums.h"
#include "checkpoint/shards/sharded_run.h"
#include "checkpoint/shards/sharding_info.h"

namespace ddp::shards {

/// Of "model-00002-of-00004.safetensors": the part "model.safetensors", rank 1 of 4.
struct ShardFileName {
  std::string part{};
  int rank = 0;
  int ranks = 1;
};

/// "model-00002-of-00004.safetensors" of the part "model.safetensors", rank 1 and 4 ranks. Throws std::invalid_argument
/// for a part with another ending, a rank that there is not, and more than 99,999 ranks.
std::string shard_file_name(const std::string& part, int rank, int ranks);

/// The reverse; nullopt for other names.
std::optional<ShardFileName> parse_shard_file_name(std::string_view name);

/// Whether the name has the form of a shard's, but there is no such rank: "model-00005-of-00004.safetensors".
bool is_of_no_rank(std::string_view name);

/// A chunk that a rank writes.
struct ChunkEntry {
  std::string name{};
  std::string dtype{};           ///< as in Python, without "torch."
  std::vector<int64_t> shape{};  ///< of the whole tensor
  Box box{};
};

/// The header of a file with such chunks, in the format's order; header.tensors has the chunks' shapes and ranges.
/// Throws std::invalid_argument, naming the tensor, for a dtype that the format lacks, for two chunks of one tensor,
/// which a file cannot hold, and for a name that is not UTF-8.
safetensors::Header shard_header(const std::vector<ChunkEntry>& chunks, const Metadata& metadata);

/// Reads the headers of the files of one part, which are in `folder`, into one catalog and checks it. Files without
/// kShardingInfo hold whole tensors. `checksums` may lack files. Throws storage::DamagedCheckpoint naming file, rank
/// and tensor where one is missing, short or contradicts another: also where `files` has
/// "…-00001-of-00004.safetensors", but not those of all 4 ranks, where two are of another number of ranks, and where
/// shards have a metadata key in common whose values differ. storage::UnreadableCheckpoint where the system gives an
/// error, and std::system_error where memory or descriptors are short.
TensorCatalog read_shard_headers(storage::FileSystem& file_system, const std::filesystem::path& folder,
                                 const std::vector<std::string>& files, const BlockChecksums& checksums);

/// The names among `files` that are shards, by part.
std::map<std::string, std::vector<std::string>> shard_files_by_part(const std::set<std::string>& files);

}  // namespace ddp::shards

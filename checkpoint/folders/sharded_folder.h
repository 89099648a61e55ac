// Folders whose files hold chunks of tensors: checkpoints that several ranks wrote, folders of safetensors shards
// without a manifest, as Python's HuggingFaceStorageWriter writes them, and those of torch.distributed.checkpoint
// (DCP). No LibTorch.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include <ddprun/detail/checkpoint/storage/file_system.h>
#include <ddprun/detail/checkpoint/storage/mapped_file.h>

#include "checkpoint/shards/block_checksums.h"
#include "checkpoint/shards/tensor_catalog.h"
#include "checkpoint/storage/damage.h"
#include "checkpoint/storage/manifest.h"

namespace ddp {

/// The tensors of one part of a run whose files hold chunks of them.
struct ChunkedPart {
  shards::TensorCatalog catalog{};
  std::shared_ptr<const shards::BlockChecksums> checksums{};
};

/// What such a folder holds. Of the tensors only the headers are read.
struct ShardedFolder {
  const char* kind = "";
  std::optional<storage::Manifest> manifest{};  ///< of a checkpoint of this project's
  /// By the names of a checkpoint's files: "model.safetensors".
  std::map<std::string, std::unique_ptr<ChunkedPart>> parts{};
  std::map<std::string, storage::Bytes> files{};  ///< a checkpoint's other files, compared with their checksums
  std::map<std::string, std::string> texts{};     ///< of DCP, see shards::ShardedRun
  std::map<std::string, std::string> skipped{};   ///< names that are not read, and what they are
};

/// Whether the checkpoint has files that hold chunks, by their names.
bool has_shards(const storage::Manifest& manifest);

/// Whether `folder` holds safetensors files that are shards by name, and neither a manifest nor an index.
bool is_folder_of_shards(const std::filesystem::path& folder);

/// Whether `folder` is one of those: a checkpoint of this project's with shards, a folder of shards or one of DCP.
/// Throws storage::DamagedCheckpoint for a manifest that cannot be read, and as refuse_uncommitted() does.
bool is_sharded_folder(storage::FileSystem& file_system, const std::filesystem::path& folder);

/// Opens whichever it is, as the functions below.
ShardedFolder open_sharded_folder(storage::FileSystem& file_system, const std::filesystem::path& folder);

/// These throw storage::DamagedCheckpoint or std::runtime_error naming file, rank and a tensor of what is missing,
/// short or contradicts itself, and std::system_error.
ShardedFolder open_sharded_checkpoint(storage::FileSystem& file_system, const std::filesystem::path& folder,
                                      storage::Manifest manifest);
ShardedFolder open_folder_of_shards(storage::FileSystem& file_system, const std::filesystem::path& folder);
ShardedFolder open_dcp_folder(storage::FileSystem& file_system, const std::filesystem::path& folder);

/// Why the checkpoint in `folder`, of which `failure` is known, cannot be used: of one with shards which rank's file
/// and which tensor are missing.
storage::Failure describe_damage(storage::FileSystem& file_system, const std::filesystem::path& folder,
                                 storage::Failure failure);

/// Reads every byte of the checkpoint and compares files and blocks with their checksums. Throws as above.
void verify_sharded_checkpoint(storage::FileSystem& file_system, const std::filesystem::path& folder,
                               const storage::Manifest& manifest);

/// Reads every item of a DCP folder, or of `shares` equal ones the share `index`, and compares the CRC-32 in its
/// archive; false where there is an item without one. `folder` is what open_dcp_folder() returned; of any other it
/// reads nothing and returns false.
bool verify_dcp_items(storage::FileSystem& file_system, const ShardedFolder& folder, int index = 0, int shares = 1);

}  // namespace ddp

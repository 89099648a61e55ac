// Which checkpoints a directory holds, and whether they are what was written. No LibTorch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <ddprun/detail/checkpoint/storage/file_system.h>

#include "checkpoint/storage/damage.h"
#include "checkpoint/storage/manifest.h"

namespace ddp::storage {

// These throw DamagedCheckpoint, or UnreadableCheckpoint where it may be whole, and std::system_error for a shortage.

/// Reads a checkpoint folder's manifest and nothing else.
Manifest read_manifest_only(FileSystem& file_system, const std::filesystem::path& folder);

/// Reads a checkpoint folder's manifest and compares the files' sizes.
Manifest read_manifest(FileSystem& file_system, const std::filesystem::path& folder);

/// Throw DamagedCheckpoint unless a file of `folder` has the recorded size, or checksum.
void check_size(FileSystem& file_system, const FileDescriptor& file, const std::filesystem::path& folder,
                const std::string& name, const FileRecord& record);
void check_checksum(const std::filesystem::path& folder, const std::string& name, const FileRecord& record,
                    uint32_t checksum);

/// Whether the folder has something of this name, even a link that leads nowhere. Does not fail: a name whose lookup
/// fails counts as absent.
bool is_there(const std::filesystem::path& path);

/// Reads every file and compares its checksum.
void verify_files(FileSystem& file_system, const std::filesystem::path& folder, const Manifest& manifest);

/// One checkpoint of a directory.
struct CheckpointEntry {
  int64_t step = 0;
  std::filesystem::path folder{};
  Manifest manifest{};
  Failure failure{};  ///< why it cannot be used or read; empty if manifest and sizes are right
};

/// All checkpoints of `directory`, the one that was saved last first (in version 1 of the format the one with the most
/// steps), those without a readable manifest in front; an empty list when it does not exist. Contents are not read, and
/// nothing is changed: a checkpoint whose replacement was interrupted is listed under its `….old-<id>` name, and one
/// that a writer removes meanwhile is left out. Throws std::system_error for a shortage of descriptors or memory, in
/// which any of them could seem to be damaged.
std::vector<CheckpointEntry> list_checkpoints(FileSystem& file_system, const std::filesystem::path& directory);

/// Where the checkpoint of `step` is, or would be. Does not fail.
std::filesystem::path find_checkpoint(FileSystem& file_system, const std::filesystem::path& directory, int64_t step);

/// An upper bound of the sequence numbers of the checkpoints in `directory`: the largest one if all can be read; 0
/// without checkpoints. Throws std::system_error for a shortage.
int64_t last_sequence(FileSystem& file_system, const std::filesystem::path& directory);

}  // namespace ddp::storage

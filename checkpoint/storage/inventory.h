// Which checkpoints a directory holds, and whether they are what was written. No LibTorch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include <ddprun/checkpoint/storage/file_system.h>

#include "checkpoint/storage/manifest.h"

namespace ddp::storage {

/// A checkpoint that cannot be trusted; the message names folder and reason.
class DamagedCheckpoint : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Reads a checkpoint folder's manifest and nothing else. Throws DamagedCheckpoint.
Manifest read_manifest_alone(FileSystem& file_system, const std::filesystem::path& folder);

/// Reads a checkpoint folder's manifest and compares the files' sizes. Throws DamagedCheckpoint.
Manifest read_manifest(FileSystem& file_system, const std::filesystem::path& folder);

/// Throw DamagedCheckpoint unless a file of `folder` has the recorded size, or checksum.
void check_size(FileSystem& file_system, const FileDescriptor& file, const std::filesystem::path& folder,
                const std::string& name, const FileRecord& record);
void check_checksum(const std::filesystem::path& folder, const std::string& name, const FileRecord& record,
                    uint32_t checksum);

/// Reads every file and compares its checksum. Throws DamagedCheckpoint.
void verify_files(FileSystem& file_system, const std::filesystem::path& folder, const Manifest& manifest);

/// One checkpoint of a directory.
struct CheckpointEntry {
  int64_t step = 0;
  std::filesystem::path folder{};
  Manifest manifest{};
  std::string damage{};  ///< why it cannot be used; empty when manifest and sizes are right
};

/// All checkpoints of `directory`, the one that was saved last first (in version 1 of the format the one with the most
/// steps), those without a readable manifest in front; an empty list when it does not exist. Contents are not read, and
/// nothing is changed: a checkpoint whose replacement was interrupted is listed under its `….old-<id>` name, and one
/// that a writer removes meanwhile is left out.
std::vector<CheckpointEntry> list_checkpoints(FileSystem& file_system, const std::filesystem::path& directory);

/// Where the checkpoint of `step` is, or would be. Does not fail.
std::filesystem::path find_checkpoint(FileSystem& file_system, const std::filesystem::path& directory, int64_t step);

/// The largest sequence in `directory`; 0 for none.
int64_t last_sequence(FileSystem& file_system, const std::filesystem::path& directory);

}  // namespace ddp::storage

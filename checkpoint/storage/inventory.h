// Which checkpoints a directory holds, and whether they are what was written. No LibTorch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include "checkpoint/storage/file_system.h"
#include "checkpoint/storage/manifest.h"

namespace ddp::storage {

/// A checkpoint that cannot be trusted; the message names folder and reason.
class DamagedCheckpoint : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Reads a checkpoint folder's manifest and compares the files' sizes. Throws DamagedCheckpoint.
Manifest read_manifest(FileSystem& file_system, const std::filesystem::path& folder);

/// Reads every file and compares its checksum. Throws DamagedCheckpoint.
void verify_files(FileSystem& file_system, const std::filesystem::path& folder, const Manifest& manifest);

/// One checkpoint of a directory.
struct CheckpointEntry {
  int64_t step = 0;
  std::filesystem::path folder{};
  Manifest manifest{};
  std::string damage{};  ///< why it cannot be used; empty when manifest and sizes are right
};

/// All checkpoints of `directory`, newest first; an empty list when it does not exist. Contents are not read.
std::vector<CheckpointEntry> list_checkpoints(FileSystem& file_system, const std::filesystem::path& directory);

}  // namespace ddp::storage

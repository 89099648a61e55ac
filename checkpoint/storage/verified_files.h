// A checkpoint's files, verified and in memory, while another process may be saving and removing beside. No LibTorch.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include <ddprun/detail/checkpoint/storage/file_system.h>
#include <ddprun/detail/checkpoint/storage/mapped_file.h>

#include "checkpoint/storage/manifest.h"

namespace ddp::storage {

/// What open_checkpoint() gives.
struct VerifiedFiles {
  Manifest manifest{};
  std::map<std::string, Bytes> files{};  ///< by name; they stay readable when the checkpoint is removed
};

/// Maps every file of the checkpoint in `folder`, each the very one whose size and checksum were compared; once more
/// from the start where the checkpoint was replaced by another of its step meanwhile. Throws DamagedCheckpoint, of
/// which UnreadableCheckpoint is one, and std::system_error for a shortage.
VerifiedFiles open_checkpoint(FileSystem& file_system, const std::filesystem::path& folder);

}  // namespace ddp::storage

// Makes room for a new run in a directory that holds an earlier one's checkpoints. No LibTorch.
#pragma once

#include <filesystem>
#include <optional>

#include <ddprun/detail/checkpoint/storage/file_system.h>

namespace ddp::storage {

/// Moves the checkpoints of `directory`, and its file `latest`, into a new folder `previous-<n>` there, which is
/// returned, or nothing. The newest ones go last, so that a process killed meanwhile leaves those
/// under their names. For the holder of the WriterLock. Throws std::system_error naming the path.
std::optional<std::filesystem::path> set_aside_checkpoints(FileSystem& file_system,
                                                           const std::filesystem::path& directory);

/// The folder that it has made last, or nothing. Throws std::system_error naming the path.
std::optional<std::filesystem::path> newest_set_aside(FileSystem& file_system, const std::filesystem::path& directory);

}  // namespace ddp::storage

// A file's bytes as memory: pages are read when they are touched, and no second copy of the file is made. No LibTorch.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include <ddprun/detail/checkpoint/storage/file_system.h>

namespace ddp::storage {

/// Bytes and what keeps them alive.
struct Bytes {
  std::shared_ptr<void> owner{};
  std::string_view view{};
};

/// Maps a regular file privately: writes to the memory never reach the file. The file must not be made shorter while it
/// is mapped (the kernel answers such reads with SIGBUS); files that this project wrote are replaced, never changed.
/// Throws std::system_error naming the file.
Bytes map_file(FileSystem& file_system, const std::filesystem::path& path);

/// The same of an open file, which may be closed afterwards; `path` is for messages.
Bytes map_file(FileSystem& file_system, const FileDescriptor& file, const std::filesystem::path& path);

/// Bytes that are in memory already.
Bytes own_bytes(std::string bytes);

}  // namespace ddp::storage

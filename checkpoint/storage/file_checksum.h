// The checksum of a file's bytes. No LibTorch.
#pragma once

#include <cstdint>
#include <filesystem>

#include <ddprun/detail/checkpoint/storage/file_system.h>

namespace ddp::storage {

/// CRC32C of the first `size` bytes. Large files are read by several threads, since one alone keeps no fast disk busy;
/// `file_system` must allow that. Throws what its open() and read() throw.
uint32_t file_checksum(FileSystem& file_system, const std::filesystem::path& path, uint64_t size);

/// The same of an open file; `path` is for messages.
uint32_t file_checksum(FileSystem& file_system, const FileDescriptor& file, const std::filesystem::path& path,
                       uint64_t size);

}  // namespace ddp::storage

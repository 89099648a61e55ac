// A new file that is written once, from front to end, with its size and checksum kept on the way. No LibTorch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include <ddprun/detail/checkpoint/storage/file_system.h>

#include "checkpoint/storage/byte_sink.h"

namespace ddp::storage {

/// What was written into a file, and must be there when it is read.
struct FileRecord {
  uint64_t size = 0;
  uint32_t crc32c = 0;

  bool operator==(const FileRecord&) const = default;
};

/// Bytes of a file that have a checksum of their own, so that a part of the file can be read and compared; the last
/// block may be shorter.
inline constexpr uint64_t kBlockBytes = uint64_t{1} << 20;

/// Creates the file at construction; without finish() an incomplete file remains. Throws std::system_error.
class DurableFile : public ByteSink {
 public:
  DurableFile(FileSystem& file_system, std::filesystem::path path);

  void write(const void* data, size_t size) override;

  /// Flushes the bytes to the disk and closes the file.
  FileRecord finish();

  /// After finish(): the CRC32C of each block of kBlockBytes.
  const std::vector<uint32_t>& blocks() const { return blocks_; }

 private:
  FileSystem& file_system_;
  std::filesystem::path path_;
  FileDescriptor file_;
  FileRecord record_;
  std::vector<uint32_t> blocks_;
  uint64_t flushing_ = 0;  // bytes whose write-back was requested
};

}  // namespace ddp::storage

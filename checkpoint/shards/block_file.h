// A file of a checkpoint that is read in parts, each compared with its checksums. No LibTorch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <ddprun/detail/checkpoint/storage/file_system.h>

#include "checkpoint/storage/damage.h"

namespace ddp::shards {

/// Memory that is used again for the next read.
class ReadBuffer {
 public:
  /// Most bytes of a read.
  static constexpr uint64_t kBytes = uint64_t{16} << 20;

  char* get(size_t bytes) {
    if (bytes_.size() < bytes) bytes_.resize(bytes);
    return bytes_.data();
  }

 private:
  std::vector<char> bytes_;
};

/// Which bytes of a file are missing or are not those that were written.
class DamagedBytes : public storage::DamagedCheckpoint {
 public:
  DamagedBytes(const std::string& what, uint64_t begin, uint64_t end)
      : DamagedCheckpoint(what), begin_(begin), end_(end) {}

  uint64_t begin() const { return begin_; }
  uint64_t end() const { return end_; }

 private:
  uint64_t begin_;
  uint64_t end_;
};

/// Throws DamagedBytes for a file that is shorter or has other bytes than were written, and std::system_error where the
/// system gives an error.
class BlockFile {
 public:
  /// Opens the file and compares its size with the number of blocks. `blocks` are the checksums of its blocks, which
  /// must outlive it; null: it has no checksums.
  BlockFile(storage::FileSystem& file_system, std::filesystem::path path, const std::vector<uint32_t>* blocks);

  const std::filesystem::path& path() const { return path_; }
  const storage::FileDescriptor& descriptor() const { return file_; }
  uint64_t size() const { return size_; }

  /// Throws unless the file has the bytes from `begin` to `end`.
  void expect(uint64_t begin, uint64_t end) const;

  /// Reads the bytes from `begin` to `end` in pieces, in order, and gives each to `take` with its position. Of blocks
  /// with checksums the rest is read too.
  void read(uint64_t begin, uint64_t end, ReadBuffer& buffer,
            const std::function<void(uint64_t position, std::string_view bytes)>& take) const;

 private:
  void compare(uint64_t position, std::string_view bytes) const;

  storage::FileSystem& file_system_;
  std::filesystem::path path_;
  storage::FileDescriptor file_;
  uint64_t size_;
  const std::vector<uint32_t>* blocks_;
};

}  // namespace ddp::shards

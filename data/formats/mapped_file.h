// The bytes of a file, mapped into memory. Pages are read when they are accessed. Does not use LibTorch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string_view>

namespace ddp {

/// Maps a regular file privately: writes to the memory never reach the file. Copies share the mapping, which exists as
/// long as a copy or a pointer returned by owner() exists. The file must not be truncated during that time, because
/// accesses would then cause SIGBUS.
class MappedFile {
 public:
  /// Throws DataError if it is not a regular file, or if it cannot be opened or mapped.
  explicit MappedFile(std::filesystem::path path);

  const std::filesystem::path& path() const { return path_; }
  std::string_view bytes() const { return {static_cast<const char*>(memory_.get()), size_}; }
  uint8_t* data() const { return static_cast<uint8_t*>(memory_.get()); }
  uint64_t size() const { return size_; }
  /// Keeps the memory mapped as long as the returned pointer exists.
  std::shared_ptr<void> owner() const { return memory_; }

 private:
  std::filesystem::path path_;
  std::shared_ptr<void> memory_;
  size_t size_ = 0;
};

}  // namespace ddp

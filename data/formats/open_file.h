// Files that readers open, and files with which writers replace older files. Uses POSIX, but not LibTorch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>

namespace ddp {

/// A regular file that is open for reading. The destructor closes it.
class OpenFile {
 public:
  /// Throws DataError if it cannot be opened or is not a regular file (a pipe or device could block or never end).
  explicit OpenFile(const std::filesystem::path& path);
  ~OpenFile();
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  int get() const { return file_; }
  uint64_t size() const { return size_; }
  /// Returns the descriptor, which the caller must close.
  int release();

 private:
  int file_ = -1;
  uint64_t size_ = 0;
};

/// A new file that gets its name only when commit() is called. If the program ends before that or the disk is full, an
/// older file with that name remains unchanged.
class ReplacedFile {
 public:
  /// Throws DataError if the file cannot be created.
  explicit ReplacedFile(std::filesystem::path path);
  /// Removes the written bytes unless commit() was called.
  ~ReplacedFile();
  ReplacedFile(const ReplacedFile&) = delete;
  ReplacedFile& operator=(const ReplacedFile&) = delete;

  /// Appends bytes. Throws DataError.
  void write(std::string_view bytes);
  /// Overwrites bytes that were written before. Throws DataError.
  void overwrite(uint64_t position, std::string_view bytes);
  /// Truncates the file to `position` bytes; the next write appends there. Throws DataError.
  void truncate(uint64_t position);
  /// The number of bytes written so far.
  uint64_t position() const { return position_; }
  /// Renames the file to its final name. Throws DataError.
  void commit();

 private:
  [[noreturn]] void fail() const;

  std::filesystem::path path_;
  std::filesystem::path written_;
  int file_ = -1;
  uint64_t position_ = 0;
};

}  // namespace ddp

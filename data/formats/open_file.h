// Files that readers open, and files with which writers replace older ones. POSIX, no LibTorch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>

namespace ddp {

/// A regular file for reading. The destructor closes it.
class OpenFile {
 public:
  /// Throws DataError when it cannot be opened or is not a regular file (a pipe or device could block or never end).
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

/// A file that is written from its beginning. It gets its name when it is complete. If the program ends before, or the
/// disk is full, the older file of that name remains.
class ReplacedFile {
 public:
  /// Throws DataError when it cannot be made.
  explicit ReplacedFile(std::filesystem::path path);
  /// Removes the written bytes unless commit() was called.
  ~ReplacedFile();
  ReplacedFile(const ReplacedFile&) = delete;
  ReplacedFile& operator=(const ReplacedFile&) = delete;

  /// Appends. Throws DataError.
  void write(std::string_view bytes);
  /// Overwrites bytes that were written before. Throws DataError.
  void overwrite(uint64_t position, std::string_view bytes);
  /// Truncates the file to `position` bytes; the next write appends there. Throws DataError.
  void truncate(uint64_t position);
  /// Bytes written so far.
  uint64_t position() const { return position_; }
  /// Gives the file its name. Throws DataError.
  void commit();

 private:
  [[noreturn]] void fail() const;

  std::filesystem::path path_;
  std::filesystem::path written_;
  int file_ = -1;
  uint64_t position_ = 0;
};

}  // namespace ddp

// Files that readers open, and files that writers put in the place of older ones. POSIX, no LibTorch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>

namespace ddp {

/// A regular file, to read; closes itself.
class OpenFile {
 public:
  /// Throws DataError when it is not a regular file (a pipe or device could block or never end) or cannot be opened.
  explicit OpenFile(const std::filesystem::path& path);
  ~OpenFile();
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  int get() const { return file_; }
  uint64_t size() const { return size_; }
  /// Gives the descriptor away.
  int release();

 private:
  int file_ = -1;
  uint64_t size_ = 0;
};

/// A file that is written from its beginning. It gets its name when it is whole: a program that is ended meanwhile, or
/// a full disk, leaves what the name stood for.
class ReplacedFile {
 public:
  /// Throws DataError when it cannot be made.
  explicit ReplacedFile(std::filesystem::path path);
  /// Without commit(), removes what was written.
  ~ReplacedFile();
  ReplacedFile(const ReplacedFile&) = delete;
  ReplacedFile& operator=(const ReplacedFile&) = delete;

  /// Appends. Throws DataError.
  void write(std::string_view bytes);
  /// Overwrites at a position that was written before. Throws DataError.
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

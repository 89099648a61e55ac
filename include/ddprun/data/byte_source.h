// The bytes of a file, plain or gzip-compressed, for readers that check before they allocate; and what readers throw.
// Does not use LibTorch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace ddp {

/// A data file or folder cannot be used. what() is one line: `<path>: <expected, got, what to do>`.
class DataError : public std::runtime_error {
 public:
  /// `problem` says what was expected, what was got and what to do.
  DataError(std::filesystem::path path, const std::string& problem);

  /// The file or folder that cannot be used.
  const std::filesystem::path& path() const noexcept { return path_; }

 private:
  std::filesystem::path path_;
};

/// Reads a regular file from its beginning, and decompresses a gzip file. It does not trust the file's content.
class ByteSource {
 public:
  /// Throws DataError when it is not a regular file (a pipe or device could block or never end) or cannot be opened.
  explicit ByteSource(std::filesystem::path path);
  ~ByteSource();
  ByteSource(ByteSource&& other) noexcept;
  ByteSource& operator=(ByteSource&& other) noexcept;

  /// Fills `bytes`. Throws DataError, naming how many bytes there were, when the file ends before or is damaged.
  void read(std::span<uint8_t> bytes);

  /// Skips `count` bytes.
  void skip(uint64_t count);

  /// Throws DataError when fewer than `count` bytes can follow: more than the rest of a plain file, or more than a gzip
  /// file of this size can decompress to. A gzip file that would decompress to more than both 512 MiB and 128 times its
  /// size is an error too. Call it before memory for these bytes is allocated; it is best to allocate that memory
  /// gradually while reading.
  void require(uint64_t count) const;

  /// Throws DataError if the file has further bytes.
  void require_end();

  /// The file's path, as it was given.
  const std::filesystem::path& path() const { return path_; }

  /// Whether it is a gzip file. Known only after the first bytes have been read.
  bool is_compressed() const;

  /// The file's size on disk.
  uint64_t file_bytes() const { return size_; }

 private:
  struct Stream;

  uint64_t read_some(std::span<uint8_t> bytes);

  std::filesystem::path path_;
  std::unique_ptr<Stream> stream_;
  uint64_t size_ = 0;
  uint64_t position_ = 0;
};

/// The whole of a small file, such as a list of names. Throws DataError when it has more than `most` bytes.
std::string read_small_file(const std::filesystem::path& path, uint64_t most);

/// The same as bytes.
std::vector<uint8_t> read_small_file_bytes(const std::filesystem::path& path, uint64_t most);

}  // namespace ddp

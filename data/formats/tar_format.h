// Reads the files of a tar archive in order, in the formats ustar, GNU and pax. Reference: POSIX.1-2017 pax, and
// Python's tarfile, which webdataset from PyPI uses. Does not use LibTorch.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/formats/byte_stream.h"

namespace ddp {

/// A regular file in an archive.
struct TarMember {
  std::string name{};
  uint64_t size = 0;
  uint64_t header = 0;  ///< the position of its first header
};

/// Reads the regular files of an archive in order. Skips folders, links and devices.
class TarReader {
 public:
  /// A file larger than `most_file_bytes` is rejected before memory is allocated for it. Throws the same exceptions as
  /// ByteStream.
  TarReader(const std::string& url, uint64_t most_file_bytes);

  /// Returns the next file, and skips the rest of the previous one; nullopt at the end. Throws DataError (one line that
  /// names the archive and the position) if the archive is damaged.
  std::optional<TarMember> next();
  /// Returns the content of the file that next() returned. Throws DataError if the archive ends before the file does,
  /// or if the file is too large.
  std::vector<uint8_t> read();
  /// Throws the error of read() if the file is too large.
  void require_size() const;
  /// Must be called at the end. Throws DataError if the blocks of zeros at the end of the archive are missing, if the
  /// command failed, or if compressed data after these blocks is damaged.
  void check_end();
  /// Moves to the first header of a file. Returns false for a command and for a compressed archive.
  bool seek(uint64_t header);

 private:
  struct Header;
  struct Extensions;

  [[noreturn]] void fail(const std::string& problem) const;
  [[noreturn]] void refuse_sparse() const;
  bool read_header(Header& header);
  bool take_extension(const Header& header, Extensions& extensions);
  void take_pax(const Header& header, Extensions& extensions);
  std::string read_extension(const Header& header);
  void begin_content(const Header& header);
  void skip_rest();

  ByteStream stream_;
  uint64_t max_file_bytes_;
  uint64_t remaining_ = 0;  // remaining bytes of the current file's content
  uint64_t padding_ = 0;    // bytes of padding after it
  uint64_t at_ = 0;         // the position of the last header
  bool is_end_missing_ = false;
};

/// Returns the header of a regular file in ustar format, with a long name of GNU tar if necessary.
std::string tar_header(const std::string& name, uint64_t size);
/// Returns the zeros that pad a content of this size to a multiple of 512 bytes.
std::string tar_padding(uint64_t size);

}  // namespace ddp

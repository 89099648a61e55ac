// Reads the files of a tar archive in order, in the formats ustar, GNU and pax. Reference: POSIX.1-2017 pax, and
// Python's tarfile, which PyPI's webdataset uses. No LibTorch.
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
  uint64_t header = 0;  ///< where its first header begins
};

/// Reads the regular files of an archive in order; folders, links and devices are skipped.
class TarReader {
 public:
  /// `most_file_bytes`: a larger file is refused before memory is allocated for it. Throws what ByteStream throws.
  TarReader(const std::string& url, uint64_t most_file_bytes);

  /// Returns the next file, and skips the rest of the one before; nothing at the end. Throws DataError, one line that
  /// names the archive and the position, for damage.
  std::optional<TarMember> next();
  /// Returns the content of the file that next() returned. Throws DataError if the archive ends before, and for a file
  /// that is too large.
  std::vector<uint8_t> read();
  /// Throws the error of read() if the file is too large.
  void require_size() const;
  /// Call it at the end. Throws DataError if the blocks of zeros that end an archive are missing, and for a command
  /// that failed or compressed data that is damaged after them.
  void check_end();
  /// Moves to a file's first header. Returns false for a command and for a compressed archive.
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
  uint64_t most_file_bytes_;
  uint64_t left_ = 0;     // remaining bytes of the current file's content
  uint64_t padding_ = 0;  // bytes of padding after it
  uint64_t at_ = 0;       // the position of the last header
  bool lacks_end_ = false;
};

/// A header of a regular file, in ustar's form with GNU's long name where that is needed.
std::string tar_header(const std::string& name, uint64_t size);
/// Zeros that bring a content of this size to a multiple of 512 bytes.
std::string tar_padding(uint64_t size);

}  // namespace ddp

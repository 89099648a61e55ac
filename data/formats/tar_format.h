// The files in a tar archive, one after the other: ustar, GNU's and pax's. Reference: POSIX.1-2017 pax, and Python's
// tarfile, which decides what PyPI's webdataset reads. No LibTorch.
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

/// Walks over the regular files of an archive; folders, links and devices are passed over.
class TarReader {
 public:
  /// `most_file_bytes`: a larger file is refused before memory for it is taken. Throws what ByteStream throws.
  TarReader(const std::string& url, uint64_t most_file_bytes);

  /// The next file; the content of the one before is passed over where it was not read. Nothing at the end. Throws
  /// DataError, one line that names the archive and the place, for damage.
  std::optional<TarMember> next();
  /// The content of the file that next() gave. Throws DataError where the archive ends before, and for a file that is
  /// too large.
  std::vector<uint8_t> read();
  /// Throws as read() where the file is too large.
  void require_size() const;
  /// After the end: throws DataError where the blocks of zeros that end an archive are missing, and for a command that
  /// failed or compressed data that is damaged after them.
  void check_end();
  /// Goes to where a file's first header begins. False for a command and a compressed archive.
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
  uint64_t left_ = 0;     // of the current file's content
  uint64_t padding_ = 0;  // after it
  uint64_t at_ = 0;       // where the last header began
  bool lacks_end_ = false;
};

/// A header of a regular file, in ustar's form with GNU's long name where that is needed.
std::string tar_header(const std::string& name, uint64_t size);
/// Zeros that bring a content of this size to a multiple of 512 bytes.
std::string tar_padding(uint64_t size);

}  // namespace ddp

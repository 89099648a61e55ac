// TFRecord framing: length, masked CRC32C of the length, payload, masked CRC32C of the payload; all little-endian.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>

namespace ddp::wire {

/// The number of bytes of a record in addition to its payload.
inline constexpr uint64_t kRecordOverhead = 16;

/// The checksum that records store: the CRC32C, rotated and with an offset, because the plain CRC of data that contains
/// CRCs is a weak checksum.
uint32_t masked_crc32c(std::string_view bytes);

void append_record(std::string& out, std::string_view payload);

/// Reads a file of records that may be damaged, malicious, or still being written.
class RecordReader {
 public:
  /// Throws std::runtime_error, naming the file, if it is not a regular file or cannot be opened.
  explicit RecordReader(std::filesystem::path file);

  /// Returns the next payload; nullopt after the last complete record. Allocates no more memory than the remaining size
  /// of the file. Throws std::runtime_error, naming the file and the offset, if a checksum is wrong.
  std::optional<std::string> next();

  /// After the end: the size of an incomplete record, which a writer leaves if it was killed or is still writing.
  uint64_t incomplete_bytes() const { return size_ - offset_; }

 private:
  std::string read(uint64_t count);

  std::filesystem::path file_;
  std::ifstream stream_;
  uint64_t size_ = 0;
  uint64_t offset_ = 0;
};

}  // namespace ddp::wire

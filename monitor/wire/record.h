// TFRecord framing: length, masked CRC32C of the length, payload, masked CRC32C of the payload; all little-endian.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>

namespace ddp::wire {

/// Bytes that a record has besides its payload.
inline constexpr uint64_t kRecordOverhead = 16;

/// The checksum that records keep: CRC32C, rotated and shifted, so that the checksum of data that holds checksums stays
/// a good one.
uint32_t masked_crc32c(std::string_view bytes);

void append_record(std::string& out, std::string_view payload);

/// Reads a file of records that may be damaged, hostile, or still being written.
class RecordReader {
 public:
  /// Throws std::runtime_error naming the file when it is not a regular file or cannot be opened.
  explicit RecordReader(std::filesystem::path file);

  /// The next payload; nullopt at the end of the last whole record. Allocates no more than the file has left. Throws
  /// std::runtime_error naming file and offset when a checksum is wrong.
  std::optional<std::string> next();

  /// After the end: bytes of a record that is not whole, as a writer that was killed or still writes leaves them.
  uint64_t incomplete_bytes() const { return size_ - offset_; }

 private:
  std::string read(uint64_t count);

  std::filesystem::path file_;
  std::ifstream stream_;
  uint64_t size_ = 0;
  uint64_t offset_ = 0;
};

}  // namespace ddp::wire

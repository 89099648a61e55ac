#include "monitor/wire/record.h"

#include <stdexcept>
#include <system_error>
#include <utility>

#include "base/crc32c.h"
#include "base/little_endian.h"

namespace ddp::wire {
namespace {

constexpr uint64_t kHeader = 12;
constexpr uint64_t kChecksum = 4;

}  // namespace

uint32_t masked_crc32c(std::string_view bytes) {
  const uint32_t crc = crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xA282EAD8U;
}

void append_record(std::string& out, std::string_view payload) {
  std::string length;
  detail::append_integer(length, static_cast<uint64_t>(payload.size()));
  out += length;
  detail::append_integer(out, masked_crc32c(length));
  out += payload;
  detail::append_integer(out, masked_crc32c(payload));
}

RecordReader::RecordReader(std::filesystem::path file) : file_(std::move(file)) {
  std::error_code error;
  // Reading a pipe or a device could block or never end.
  if (!std::filesystem::is_regular_file(file_, error)) {
    throw std::runtime_error(file_.string() + ": expected a regular file of TFRecords");
  }
  size_ = std::filesystem::file_size(file_, error);
  stream_.open(file_, std::ios::binary);
  if (error || !stream_) throw std::runtime_error(file_.string() + ": cannot be opened");
}

std::optional<std::string> RecordReader::next() {
  const uint64_t left = size_ - offset_;
  if (left < kRecordOverhead) return std::nullopt;
  const std::string header = read(kHeader);
  const auto length = detail::read_integer<uint64_t>(header);
  const std::string at = file_.string() + ": record at byte " + std::to_string(offset_);
  if (detail::read_integer<uint32_t>(std::string_view(header).substr(8)) != masked_crc32c(header.substr(0, 8))) {
    throw std::runtime_error(at + ": wrong checksum of the length; the file is damaged or not a TFRecord file");
  }
  if (length > left - kRecordOverhead) return std::nullopt;
  std::string payload = read(length);
  if (detail::read_integer<uint32_t>(read(kChecksum)) != masked_crc32c(payload)) {
    throw std::runtime_error(at + ": wrong checksum of its " + std::to_string(length) + " bytes; the file is damaged");
  }
  offset_ += kRecordOverhead + length;
  return payload;
}

std::string RecordReader::read(uint64_t count) {
  std::string bytes(static_cast<size_t>(count), '\0');
  if (!stream_.read(bytes.data(), static_cast<std::streamsize>(count))) {
    throw std::runtime_error(file_.string() + ": cannot be read, or has become shorter");
  }
  return bytes;
}

}  // namespace ddp::wire

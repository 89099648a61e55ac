#include "checkpoint/storage/durable_file.h"

#include <algorithm>
#include <utility>

#include "base/crc32c.h"

namespace ddp::storage {

DurableFile::DurableFile(FileSystem& file_system, std::filesystem::path path)
    : file_system_(file_system), path_(std::move(path)), file_(file_system_.create(path_)) {}

void DurableFile::write(const void* data, size_t size) {
  // Checksum and copy into the page cache touch each piece while it is in the processor's cache.
  constexpr size_t kPiece = size_t{1} << 20;
  // The disk works while the next bytes are prepared.
  constexpr uint64_t kFlushPiece = uint64_t{16} << 20;
  const auto* bytes = static_cast<const char*>(data);
  while (size > 0) {
    const auto written = file_system_.write(file_, bytes, std::min(size, kPiece), path_);
    record_.crc32c = crc32c(bytes, written, record_.crc32c);
    record_.size += written;
    bytes += written;
    size -= written;
    if (record_.size - flushing_ < kFlushPiece) continue;
    file_system_.start_flush(file_, flushing_, record_.size - flushing_);
    flushing_ = record_.size;
  }
}

FileRecord DurableFile::finish() {
  file_system_.sync(file_, path_);
  file_system_.close(std::move(file_), path_);
  return record_;
}

}  // namespace ddp::storage

#include "checkpoint/storage/durable_file.h"

#include <algorithm>
#include <utility>

#include "base/crc32c.h"

namespace ddp::storage {

DurableFile::DurableFile(FileSystem& file_system, std::filesystem::path path)
    : file_system_(file_system), path_(std::move(path)), file_(file_system_.create(path_)) {}

void DurableFile::write(const void* data, size_t size) {
  // The disk works while the next bytes are prepared.
  constexpr uint64_t kFlushPiece = uint64_t{16} << 20;
  const auto* bytes = static_cast<const char*>(data);
  while (size > 0) {
    const auto in_block = record_.size % kBlockBytes;
    if (in_block == 0) blocks_.push_back(0);
    // Checksum and copy into the page cache touch each piece while it is in the processor's cache.
    const auto piece = static_cast<size_t>(std::min<uint64_t>(size, kBlockBytes - in_block));
    const auto written = file_system_.write(file_, bytes, piece, path_);
    blocks_.back() = crc32c(bytes, written, blocks_.back());
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
  record_.crc32c = 0;
  uint64_t end = 0;
  for (const auto block : blocks_) {
    const auto size = std::min(kBlockBytes, record_.size - end);
    record_.crc32c = crc32c_combine(record_.crc32c, block, size);
    end += size;
  }
  return record_;
}

}  // namespace ddp::storage

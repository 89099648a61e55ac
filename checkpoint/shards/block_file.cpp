#include "checkpoint/shards/block_file.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/crc32c.h"
#include "checkpoint/storage/durable_file.h"

namespace ddp::shards {

using storage::kBlockBytes;

BlockFile::BlockFile(storage::FileSystem& file_system, std::filesystem::path path, const std::vector<uint32_t>* blocks)
    : file_system_(file_system),
      path_(std::move(path)),
      file_(file_system_.open(path_)),
      size_(file_system_.size(file_, path_)),
      blocks_(blocks) {
  if (blocks_ == nullptr || (size_ + kBlockBytes - 1) / kBlockBytes == blocks_->size()) return;
  const auto written = blocks_->size() * kBlockBytes;  // rounded up to blocks
  throw DamagedBytes(path_.string() + " has " + std::to_string(size_) + " bytes, but " +
                         std::to_string(blocks_->size()) + " blocks of 1 MiB were written",
                     std::min(size_, written), std::max(size_, written));
}

void BlockFile::expect(uint64_t begin, uint64_t end) const {
  if (end <= size_ && begin <= end) return;
  throw DamagedBytes(path_.string() + " has " + std::to_string(size_) + " bytes, but those from " +
                         std::to_string(begin) + " to " + std::to_string(end) + " are needed: it was truncated",
                     size_, std::max(begin, end));
}

void BlockFile::read(uint64_t begin, uint64_t end, ReadBuffer& buffer,
                     const std::function<void(uint64_t, std::string_view)>& take) const {
  expect(begin, end);
  if (begin == end) return;
  // Whole blocks, where they have checksums.
  const auto unit = blocks_ != nullptr ? kBlockBytes : 1;
  for (auto position = begin / unit * unit; position < end;) {
    const auto wanted = std::min((end + unit - 1) / unit * unit, size_);
    const auto size = static_cast<size_t>(std::min(wanted - position, ReadBuffer::kBytes));
    auto* bytes = buffer.get(size);
    file_system_.read(file_, bytes, size, position, path_);
    const std::string_view piece(bytes, size);
    compare(position, piece);
    const auto first = std::max(begin, position);
    const auto last = std::min(end, position + size);
    take(first, piece.substr(first - position, last - first));
    position += size;
  }
}

void BlockFile::compare(uint64_t position, std::string_view bytes) const {
  if (blocks_ == nullptr) return;
  for (; !bytes.empty(); position += kBlockBytes) {
    const auto block = bytes.substr(0, kBlockBytes);
    if (crc32c(block) != blocks_->at(position / kBlockBytes)) {
      const auto end = position + block.size();
      throw DamagedBytes(path_.string() + ": the bytes from " + std::to_string(position) + " to " +
                             std::to_string(end) + " are not those that were written (CRC32C)",
                         position, end);
    }
    bytes.remove_prefix(block.size());
  }
}

}  // namespace ddp::shards

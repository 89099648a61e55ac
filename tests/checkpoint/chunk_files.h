// Files that hold the chunks of a catalog, whose elements say which they are; and what is read of them.
#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <ddprun/detail/checkpoint/storage/file_system.h>

#include "base/crc32c.h"
#include "checkpoint/pt/dtypes.h"
#include "checkpoint/shards/block_checksums.h"
#include "checkpoint/storage/durable_file.h"
#include "tests/checkpoint/chunked_tensors.h"
#include "tests/support/files.h"

namespace ddp::test {

/// From begin to end, of a file's bytes.
using ByteRange = std::pair<uint64_t, uint64_t>;

/// The bytes of one element, other for each element of each tensor.
inline std::string element_bytes(const std::string& name, int64_t number, size_t bytes) {
  std::string text;
  for (uint64_t i = 0; text.size() < bytes; ++i) {
    uint64_t word = crc32c(name) + (static_cast<uint64_t>(number) * 4 + i + 1) * 0x9e3779b97f4a7c15U;
    word ^= word >> 29U;
    text.append(reinterpret_cast<const char*>(&word), std::min(sizeof(word), bytes - text.size()));
  }
  return text;
}

/// The bytes of all elements of `box`.
inline std::string box_bytes(const std::string& name, const shards::CatalogTensor& tensor, const shards::Box& box) {
  const auto bytes = pt::dtype_by_name(tensor.dtype)->bytes;
  std::string text;
  for_each_place(box, [&](const auto& place) { text += element_bytes(name, linear(place, tensor.shape), bytes); });
  return text;
}

inline std::vector<uint32_t> block_checksums(const std::string& content) {
  std::vector<uint32_t> blocks;
  for (size_t begin = 0; begin < content.size(); begin += storage::kBlockBytes) {
    blocks.push_back(crc32c(std::string_view(content).substr(begin, storage::kBlockBytes)));
  }
  return blocks;
}

/// The real file system, which notes what is opened and read.
class CountingFileSystem : public storage::FileSystem {
 public:
  storage::FileDescriptor open(const std::filesystem::path& path) override {
    ++opened[path.filename().string()];
    return FileSystem::open(path);
  }
  void read(const storage::FileDescriptor& file, void* data, size_t size, uint64_t position,
            const std::filesystem::path& path) override {
    largest = std::max(largest, size);
    reads[path.filename().string()].emplace_back(position, position + size);
    FileSystem::read(file, data, size, position, path);
  }

  /// What was read of a file, neighbours together, in the order of reading.
  std::vector<ByteRange> ranges(const std::string& file) const {
    std::vector<ByteRange> result;
    const auto found = reads.find(file);
    if (found == reads.end()) return result;
    for (const auto& range : found->second) {
      if (!result.empty() && result.back().second == range.first) {
        result.back().second = range.second;
      } else {
        result.push_back(range);
      }
    }
    return result;
  }
  void reset() {
    reads.clear();
    opened.clear();
    largest = 0;
  }

  std::map<std::string, std::vector<ByteRange>> reads;
  std::map<std::string, int> opened;
  size_t largest = 0;
};

}  // namespace ddp::test

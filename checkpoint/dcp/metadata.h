// What the file .metadata of a folder of torch.distributed.checkpoint says: a pickle of which nothing is executed. No
// LibTorch and no I/O.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/dcp/path.h"
#include "checkpoint/pt/format_error.h"
#include "checkpoint/shards/box.h"

namespace ddp::dcp {

/// Longest .metadata that is read: some millions of chunks.
inline constexpr size_t kMaxMetadataBytes = size_t{512} << 20;

/// A range of a file.
struct StoredItem {
  uint32_t file = 0;  ///< its number in FolderMetadata::files
  uint64_t begin = 0;
  uint64_t size = 0;
};

struct StoredChunk {
  shards::Box box{};
  StoredItem item{};
};

/// A tensor or a value.
struct Entry {
  std::string key{};
  Path path{};  ///< {key} where the folder does not say
  bool is_tensor = false;
  std::string dtype{};                ///< of a tensor, without "torch."
  std::vector<int64_t> shape{};       ///< … of the whole
  std::vector<StoredChunk> chunks{};  ///< … that have elements
  StoredItem item{};                  ///< of a value
};

struct FolderMetadata {
  std::vector<Entry> entries{};      ///< in the order of Python's state dict, as far as the folder has it
  std::vector<std::string> files{};  ///< names in the folder, each one a plain file name
};

/// Reads the pickle, of protocol 2 to 5, as PyTorch 2.1 to 2.15 and Python 3.8 to 3.14 write it. Throws pt::FormatError
/// for a name that metadata does not have, for values of the wrong kind, for an item of a stream transform, and for a
/// tensor's chunk or a value that no file holds; the message names the key. Allocates a small multiple of `pickle`.
FolderMetadata parse_metadata(std::string_view pickle);

}  // namespace ddp::dcp

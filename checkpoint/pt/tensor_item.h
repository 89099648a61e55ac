// A tensor in a .distcp file, which is an archive of torch.save(): where its elements lie, so that a part of them can
// be read without the rest. No LibTorch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <ddprun/detail/checkpoint/storage/file_system.h>

#include "checkpoint/pt/format_error.h"
#include "checkpoint/pt/value.h"

namespace ddp::pt {

/// An item as the folder's metadata describes it.
struct TensorItem {
  uint64_t begin = 0;   ///< first byte in the file
  uint64_t size = 0;    ///< bytes of the archive
  std::string dtype{};  ///< as in Python, without "torch.": "float32"
  std::vector<int64_t> sizes{};
};

/// Where a tensor's elements are. All positions are counted from the beginning of the file.
struct ElementPlace {
  uint64_t begin = 0;  ///< the first element in the file; nothing to be used when is_deflated
  uint64_t size = 0;   ///< bytes from the first element to the last: those of all elements when is_row_major
  /// What the checksum covers: the storage, in which the elements lie. They are the same bytes as Python writes it.
  uint64_t storage_begin = 0;
  uint64_t storage_size = 0;
  uint32_t crc32 = 0;         ///< of the storage; 0 if Python stored no checksum (set_crc32_options(False))
  bool is_row_major = false;  ///< one element after the other, as they look; else gather_elements() with `layout`
  bool is_deflated = false;   ///< an archiver has packed it: read_tensor_item() alone reads it
  TensorEntry layout{};       ///< sizes, strides and marks (conjugated, negated)
};

/// Finds the elements of `item` in the open `file`; `path` is for messages. Reads the archive's directory and pickle
/// alone, a few kilobytes at its beginning and end. Throws FormatError when the archive is damaged there, is no
/// tensor, or one of another dtype or other sizes than `item` says; std::system_error when the file is too short.
ElementPlace find_elements(storage::FileSystem& file_system, const storage::FileDescriptor& file,
                           const std::filesystem::path& path, const TensorItem& item);

/// The elements in row-major order, of the item whose archive is `archive` (its begin and size do not matter). Verifies
/// every byte with its checksum, where it has one. Throws FormatError.
std::string tensor_elements(std::string_view archive, const TensorItem& item);

/// Reads the whole of `item` and returns its elements as tensor_elements() does.
std::string read_tensor_item(storage::FileSystem& file_system, const storage::FileDescriptor& file,
                             const std::filesystem::path& path, const TensorItem& item);

}  // namespace ddp::pt

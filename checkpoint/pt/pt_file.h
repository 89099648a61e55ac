// A .pt file as torch.save, torch::save and torch::pickle_save write it: opened, verified to the last byte, and nothing
// in it executed. No LibTorch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string_view>

#include <ddprun/detail/checkpoint/storage/mapped_file.h>

#include "checkpoint/pt/value.h"

namespace ddp::pt {

/// Whether `file` begins as .pt files do: as a zip file, or in one of the forms from before PyTorch 1.6.
bool looks_like_pt(std::string_view file);

class PtFile {
 public:
  /// Compares every checksum and reads the pickle. `path` is for messages. Throws std::runtime_error naming it.
  PtFile(storage::Bytes bytes, const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  const Value& root() const;

  /// Whether every byte is covered by a checksum: not in files from before PyTorch 1.6, nor when Python was told to
  /// compute none.
  bool has_checksums() const;

  /// The bytes from the tensor's first element to its last. Throws FormatError when its storage is missing or smaller
  /// than sizes and strides ask for.
  std::string_view bytes_of(const TensorEntry& tensor) const;

  uint64_t size() const { return size_; }

  /// What keeps those bytes alive.
  std::shared_ptr<void> owner() const { return content_; }

 private:
  class Content;

  std::filesystem::path path_;
  uint64_t size_ = 0;  // of the file, in bytes
  std::shared_ptr<Content> content_;
};

}  // namespace ddp::pt

// A .pt file as torch.save, torch::save and torch::pickle_save write it: opened, verified to the last byte, and nothing
// in it executed. No LibTorch.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "checkpoint/pt/value.h"
#include "checkpoint/pt/zip_reader.h"
#include "checkpoint/storage/mapped_file.h"

namespace ddp::pt {

/// Whether a file that begins with these bytes is a zip file, as .pt files are.
bool looks_like_pt(std::string_view first_bytes);

/// Throws std::runtime_error for a file in torch.save's form of before PyTorch 1.6, which is not read.
void refuse_legacy(std::string_view first_bytes, const std::filesystem::path& path);

class PtFile {
 public:
  /// Compares every checksum and reads the pickle. `path` is for messages. Throws std::runtime_error naming it.
  PtFile(storage::Bytes bytes, const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  const Value& root() const { return pickle_->root; }

  /// The bytes from the tensor's first element to its last. Throws FormatError when its storage is missing or smaller
  /// than sizes and strides ask for, or when the tensor has more elements than its storage.
  std::string_view bytes_of(const TensorEntry& tensor) const;

  /// What keeps those bytes alive.
  const std::shared_ptr<void>& owner() const { return bytes_.owner; }

 private:
  std::filesystem::path path_;
  storage::Bytes bytes_;
  std::unique_ptr<ZipReader> zip_;
  std::string folder_;
  std::unique_ptr<Pickle> pickle_;
};

/// Whether the elements lie one after the other in row-major order.
bool is_contiguous(const TensorEntry& tensor);

/// The elements in row-major order, as new bytes. `bytes` is bytes_of(tensor).
std::string gather_elements(const TensorEntry& tensor, std::string_view bytes);

}  // namespace ddp::pt

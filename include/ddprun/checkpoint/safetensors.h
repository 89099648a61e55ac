// Tensors in safetensors files, which Python reads with safetensors.torch.load_file and writes with save_file. One
// file, one process; checkpoint.h coordinates ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <ddprun/checkpoint/safetensors_header.h>
#include <ddprun/detail/checkpoint/storage/file_system.h>
#include <ddprun/detail/checkpoint/storage/mapped_file.h>

namespace ddp {

/// Tensors by name.
using TensorMap = std::map<std::string, at::Tensor>;

/// Writes `tensors` to `path` atomically: a crash or a full disk leaves the old file as it was. Any device, strides and
/// dtype that the format has; data goes to the file in chunks without a second copy of the model. Tensors that share
/// their memory (tied weights) are written once, under the first of their names; each further name becomes a metadata
/// key whose value is the first name, as Python's safetensors.torch.save_model does. Throws std::invalid_argument
/// naming the tensor when one cannot be stored (undefined, sparse, quantized, on the meta device, complex128, no UTF-8
/// name), and std::system_error naming the file when it cannot be written.
void save_safetensors(const std::filesystem::path& path, const TensorMap& tensors, const Metadata& metadata = {});

/// An open safetensors file, mapped into memory. The constructor reads and verifies the header (see
/// safetensors::parse_header) before anything is allocated for data. Throws std::system_error when the file cannot be
/// read and std::runtime_error when it is not valid; both name it.
class SafetensorsFile {
 public:
  /// Opens and maps the file, and reads its header.
  explicit SafetensorsFile(std::filesystem::path path);

  /// The same for bytes that are in memory already; `path` is for messages.
  SafetensorsFile(storage::Bytes bytes, std::filesystem::path path);

  /// The file's path, as it was given.
  const std::filesystem::path& path() const { return path_; }
  /// The tensors' names, types and shapes, and the metadata.
  const safetensors::Header& header() const { return header_; }

  /// One tensor of header().tensors as a new, contiguous CPU tensor.
  at::Tensor read(const safetensors::TensorEntry& entry) const;

  /// The same without a copy: the tensor refers to the file's mapped memory and keeps it mapped. Writing to the tensor
  /// changes neither the file nor what other readers see.
  at::Tensor view(const safetensors::TensorEntry& entry) const;

 private:
  void parse();

  std::filesystem::path path_;
  storage::FileDescriptor file_;  // of a file that was opened here
  storage::Bytes bytes_;
  safetensors::Header header_;
  std::string_view data_;
};

/// The dtype of a tensor that is read from `entry`.
at::ScalarType scalar_type(const safetensors::TensorEntry& entry);

/// All tensors of a file, on the CPU.
TensorMap load_safetensors(const std::filesystem::path& path);

/// Tensors by name that were read from a file of any supported format and are not yet in a model.
struct StoredTensors {
  std::string source{};  ///< the file, for messages
  TensorMap tensors{};   ///< on the CPU; they may refer to a mapped file, which they keep open
  Metadata metadata{};   ///< strings stored beside the tensors
  /// Names in a .pt file whose tensors or objects cannot be loaded, with a description: "a sparse tensor …".
  std::map<std::string, std::string> skipped{};
  /// The first few keys of a .pt file that contain tensors, for LoadOptions::key.
  std::vector<std::string> entries{};
};

}  // namespace ddp

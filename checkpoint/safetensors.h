// Tensors in safetensors files, which Python reads with safetensors.torch.load_file and writes with save_file. One
// file, one process; checkpoint.h coordinates ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <map>
#include <string>

#include "checkpoint/safetensors_header.h"

namespace ddp {

/// Tensors by name.
using TensorMap = std::map<std::string, at::Tensor>;

/// Writes `tensors` to `path` atomically: a crash or a full disk leaves the old file as it was. Any device, strides and
/// dtype that the format has; data goes to the file in chunks without a second copy of the model. Tensors that are the
/// same memory (tied weights) are written once, under the first of their names; each further name becomes a metadata
/// key whose value is the first name, as Python's safetensors.torch.save_model does. Throws std::invalid_argument
/// naming the tensor when one cannot be stored (undefined, sparse, quantized, on the meta device, complex128, no UTF-8
/// name), and std::system_error naming the file when it cannot be written.
void save_safetensors(const std::filesystem::path& path, const TensorMap& tensors, const Metadata& metadata = {});

/// An open safetensors file. The constructor reads and verifies the header (see safetensors::parse_header) before
/// anything is allocated for data. Throws std::system_error when the file cannot be read and std::runtime_error when it
/// is not valid; both name it.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(std::filesystem::path path);
  ~SafetensorsFile();
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  const safetensors::Header& header() const { return header_; }

  /// One tensor of header().tensors as a new, contiguous CPU tensor.
  at::Tensor read(const safetensors::TensorEntry& entry) const;

 private:
  void read_bytes(void* data, uint64_t size, uint64_t position) const;

  std::filesystem::path path_;
  safetensors::Header header_;
  uint64_t data_position_ = 0;
  int descriptor_ = -1;
};

/// The dtype of a tensor that is read from `entry`.
at::ScalarType scalar_type(const safetensors::TensorEntry& entry);

/// All tensors of a file, on the CPU.
TensorMap load_safetensors(const std::filesystem::path& path);

}  // namespace ddp

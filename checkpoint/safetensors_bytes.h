// Safetensors as bytes: what the parts of a checkpoint are written into and read from.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <string>

#include <ddprun/checkpoint/safetensors.h>
#include <ddprun/detail/checkpoint/storage/mapped_file.h>

#include "checkpoint/storage/byte_sink.h"

namespace ddp {

// A file that is written into memory.
class TextSink : public storage::ByteSink {
 public:
  void write(const void* data, size_t size) override { text.append(static_cast<const char*>(data), size); }
  std::string text{};
};

// A uint8 tensor of [bytes.size()] on the CPU with a copy of the bytes.
inline at::Tensor as_tensor(const std::string& bytes) {
  auto tensor = at::empty({static_cast<int64_t>(bytes.size())}, at::kByte);
  if (!bytes.empty()) std::copy(bytes.begin(), bytes.end(), tensor.mutable_data_ptr<uint8_t>());
  return tensor;
}

/// The format's dtype of `tensor`. Throws std::invalid_argument naming it where it cannot be stored.
safetensors::DType storable_dtype(const std::string& name, const at::Tensor& tensor);

/// The elements of `tensor` in row-major order; at most 16 MiB of them are copied at a time.
void write_elements(storage::ByteSink& sink, const at::Tensor& tensor);

/// Throws std::invalid_argument as save_safetensors() does for tensors that cannot be stored; writes nothing.
void check_safetensors(const TensorMap& tensors);

/// save_safetensors() into a sink, from front to end.
void write_safetensors(storage::ByteSink& sink, const TensorMap& tensors, const Metadata& metadata = {});

/// The tensors of a safetensors file whose bytes are in memory or mapped already, as open_tensors() gives them; `path`
/// is for messages. Throws std::runtime_error when they are not valid.
StoredTensors view_safetensors(storage::Bytes bytes, const std::filesystem::path& path);

}  // namespace ddp

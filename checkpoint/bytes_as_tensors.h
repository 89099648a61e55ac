#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstddef>
#include <string>

#include "checkpoint/storage/byte_sink.h"

// What a checkpoint keeps that is no tensor by itself.
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

}  // namespace ddp

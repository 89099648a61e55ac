// Writes safetensors files of tensors whose elements may be in chunks. No LibTorch.
#pragma once

#include <vector>

#include "checkpoint/storage/byte_sink.h"
#include "checkpoint/tool/raw_tensor.h"

namespace ddp::tool {

/// Throws std::invalid_argument for a dtype that the format lacks and for two tensors of one name, and what
/// shards::read_chunks() throws.
void write_tensor_file(storage::ByteSink& sink, const std::vector<RawTensor>& tensors, const Metadata& metadata);

}  // namespace ddp::tool

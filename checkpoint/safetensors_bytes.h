// Safetensors as bytes: what the parts of a checkpoint are written into and read from.
#pragma once

#include <filesystem>

#include <ddprun/checkpoint/safetensors.h>
#include <ddprun/detail/checkpoint/storage/mapped_file.h>

#include "checkpoint/storage/byte_sink.h"

namespace ddp {

/// Throws std::invalid_argument as save_safetensors() does for tensors that cannot be stored; writes nothing.
void check_safetensors(const TensorMap& tensors);

/// save_safetensors() into a sink, from front to end.
void write_safetensors(storage::ByteSink& sink, const TensorMap& tensors, const Metadata& metadata = {});

/// The tensors of a safetensors file whose bytes are in memory or mapped already, as open_tensors() gives them; `path`
/// is for messages. Throws std::runtime_error when they are not valid.
StoredTensors view_safetensors(storage::Bytes bytes, const std::filesystem::path& path);

}  // namespace ddp

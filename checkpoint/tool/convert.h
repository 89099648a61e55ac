// Writes what a TensorSource holds in another form. No LibTorch.
#pragma once

#include <cstdint>
#include <filesystem>

#include "checkpoint/tool/run_parts.h"
#include "checkpoint/tool/tensor_source.h"

namespace ddp::tool {

enum class TargetForm : uint8_t {
  kFile,         ///< .pt, .pth or .safetensors, as its name ends
  kHuggingFace,  ///< a folder of model-0000i-of-0000n.safetensors and their index
  kDcp,          ///< a folder that torch.distributed.checkpoint.load() reads
  kCheckpoint,   ///< a folder as CheckpointManager writes it, with whole tensors
};

struct ConvertOptions {
  TargetForm to = TargetForm::kFile;
  bool weights_only = false;               ///< leaves out what is not the model's
  uint64_t max_file_size = 5'000'000'000;  ///< bytes of tensors in a file of kHuggingFace; larger ones stand alone
};

/// Writes `target`, which appears whole or not at all: a file is replaced, a folder must not exist. Returns what it had
/// to leave out. Memory: a buffer of 16 MiB twice, or a tensor of a DCP folder. Throws std::invalid_argument for
/// another ending, a target that exists, or a tensor that the form cannot hold, std::runtime_error for a damaged
/// source, and std::system_error.
LeftOut convert(const TensorSource& source, const std::filesystem::path& target, const ConvertOptions& options = {});

}  // namespace ddp::tool

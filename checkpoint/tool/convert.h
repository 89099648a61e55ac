// Writes what a TensorSource holds in another format. No LibTorch.
#pragma once

#include <filesystem>

#include "checkpoint/tool/left_out.h"
#include "checkpoint/tool/tensor_source.h"

namespace ddp::tool {

/// Writes `target`, atomically: a .pt or .pth file as torch.load reads it, or a .safetensors file. `weights_only`
/// leaves out what is not the model's. Returns what else it had to leave out. Throws std::invalid_argument for another
/// ending, or for a tensor that the format cannot hold, and std::runtime_error for a damaged source.
LeftOut convert(const TensorSource& source, const std::filesystem::path& target, bool weights_only);

}  // namespace ddp::tool

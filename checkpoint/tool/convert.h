// Writes what a TensorSource holds in another format. No LibTorch.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/tool/tensor_source.h"

namespace ddp::tool {

/// Names of what a target lacks, by what they are: "values, which need a .pt file".
using LeftOut = std::map<std::string, std::vector<std::string>>;

/// What `source` holds beside its model and optimizers. Throws what its damaged JSON makes.
LeftOut other_contents(const TensorSource& source);

/// One line for each of `left_out`: what, how many, and the first of their names, as a terminal may have them.
std::vector<std::string> describe(const LeftOut& left_out);

/// Writes `target`, atomically: a .pt or .pth file as torch.load reads it, or a .safetensors file. `weights_only`
/// leaves out what is not the model's. Returns what else it had to leave out. Throws std::invalid_argument for another
/// ending, or for a tensor that the format cannot hold, and std::runtime_error for a damaged source.
LeftOut convert(const TensorSource& source, const std::filesystem::path& target, bool weights_only);

}  // namespace ddp::tool

// Python's names of the safetensors format's element types. No LibTorch.
#pragma once

#include <optional>
#include <string_view>

#include <ddprun/checkpoint/safetensors_header.h>

namespace ddp::safetensors {

/// "float32"; as in Python, without "torch.".
std::string_view python_name(DType dtype);

/// The type that Python calls so; nullopt where the format has none.
std::optional<DType> dtype_of_python_name(std::string_view name);

}  // namespace ddp::safetensors

// The names of safetensors' element types. No LibTorch.
#pragma once

#include <optional>
#include <string_view>

#include <ddprun/checkpoint/safetensors_header.h>

namespace ddp::safetensors {

/// The type that the format calls `name`; nothing for another name.
std::optional<DType> dtype_from_name(std::string_view name);

}  // namespace ddp::safetensors

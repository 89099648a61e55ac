// Reads the JSON of a safetensors header into a Header. Whether its names and ranges fit together is for
// parse_header(). No LibTorch.
#pragma once

#include <string_view>

#include <ddprun/checkpoint/safetensors_header.h>

namespace ddp::safetensors {

/// The name under which the header holds what is not a tensor.
inline constexpr std::string_view kMetadataKey = "__metadata__";

/// The tensors in the order of the text. Throws FormatError for text that is not JSON, and for fields that are missing,
/// unknown, there twice or of the wrong type.
Header read_header(std::string_view json);

}  // namespace ddp::safetensors

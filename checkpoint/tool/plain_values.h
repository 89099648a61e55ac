// The plain values of a source, as a .pt file has them beside the model. No LibTorch.
#pragma once

#include <nlohmann/json.hpp>

#include "checkpoint/tool/tensor_source.h"

namespace ddp::tool {

/// A JSON object: those of a .pt file, a checkpoint's step, world_size and metrics, and under "values" the program's
/// own. Throws nlohmann::json::exception or std::invalid_argument when a file's JSON is damaged.
nlohmann::json plain_values(const TensorSource& source);

}  // namespace ddp::tool

// Tensors of a .pt file in its mapped memory. Not installed.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include <ddprun/checkpoint/safetensors.h>

#include "checkpoint/pt/pt_file.h"
#include "checkpoint/pt/state_dict.h"

namespace ddp {

/// The dtype that Python calls "float32", without "torch."; nullopt for one that C++ does not take.
std::optional<at::ScalarType> scalar_type_of_python_name(std::string_view name);

/// One tensor, without a copy; it keeps the file open. Throws std::runtime_error when it cannot be read.
at::Tensor view_pt(const pt::PtFile& file, const std::string& name, const pt::TensorEntry& entry);

/// All of `state`, its numbers as float32 scalars, or float64 ones where they need it. Those that cannot be read are
/// added to `skipped`, with what they are.
TensorMap view_pt(const pt::PtFile& file, const pt::StateDict& state, std::map<std::string, std::string>& skipped);

}  // namespace ddp

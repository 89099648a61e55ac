// An optimizer's hyper-parameters as JSON. No LibTorch.
#pragma once

#include <nlohmann/json.hpp>

#include <optional>

#include "checkpoint/pt/tensor_walk.h"
#include "checkpoint/pt/value.h"

namespace ddp::pt {

/// A truth value, number, text or list of those (infinities as json_float() has them); nothing for any other value,
/// also None. Throws FormatError when `budget` is spent.
std::optional<nlohmann::json> option_json(const Value& value, Budget& budget, int depth = 0);

}  // namespace ddp::pt

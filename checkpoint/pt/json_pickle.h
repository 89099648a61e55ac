// JSON values in a pickle. No LibTorch.
#pragma once

#include <nlohmann/json.hpp>

#include "checkpoint/pt/pickler.h"

namespace ddp::pt {

/// Adds `value` as Python's None, bool, int, float, str, list or dict; {"__float__": "inf"} is a float.
void pickle_json(Pickler& pickler, const nlohmann::json& value);

}  // namespace ddp::pt

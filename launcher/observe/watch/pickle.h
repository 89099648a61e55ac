// JSON as Python's pickle, for programs that read nothing else. Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <string>

namespace launcher {

// Protocol 2: dict, list, str, int, float, bool and None. Throws std::length_error for a text of 4 GiB.
std::string pickle_of(const nlohmann::ordered_json& value);

}  // namespace launcher

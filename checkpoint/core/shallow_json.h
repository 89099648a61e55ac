// JSON of a file that anybody may have written: nested so deeply that only the stack would notice is refused. No
// LibTorch.
#pragma once

#include <nlohmann/json.hpp>

#include <stdexcept>
#include <string_view>

namespace ddp {

/// Throws nlohmann::json::exception for text that is no JSON and std::invalid_argument for more than 64 levels.
inline nlohmann::json parse_shallow_json(std::string_view text) {
  constexpr int kMaxDepth = 64;
  return nlohmann::json::parse(text, [](int depth, nlohmann::json::parse_event_t, nlohmann::json&) {
    if (depth > kMaxDepth) throw std::invalid_argument("its JSON is nested too deeply");
    return true;
  });
}

}  // namespace ddp

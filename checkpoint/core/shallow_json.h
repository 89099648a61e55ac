// JSON of a file that anybody may have written: nested so deeply that only the stack would notice is refused. No
// LibTorch.
#pragma once

#include <nlohmann/json.hpp>

#include <cstddef>
#include <stdexcept>
#include <string_view>

namespace ddp {

/// Levels of arrays and objects: enough for any settings, few enough for the stack.
inline constexpr int kMaxJsonLevels = 64;

/// Whether arrays and objects are nested more than `levels` deep, in text that need not be valid JSON. nlohmann's
/// parser could count them by a callback, but then it goes through an array again after each object in it.
inline bool is_nested_deeper(std::string_view text, int levels) {
  int level = 0;
  bool is_in_text = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (is_in_text && c == '\\')
      ++i;
    else if (c == '"')
      is_in_text = !is_in_text;
    else if (!is_in_text && (c == '[' || c == '{') && ++level > levels)
      return true;
    else if (!is_in_text && (c == ']' || c == '}'))
      --level;
  }
  return false;
}

/// Throws nlohmann::json::exception for text that is not JSON and std::invalid_argument for more than 64 levels.
inline nlohmann::json parse_shallow_json(std::string_view text) {
  if (is_nested_deeper(text, kMaxJsonLevels)) throw std::invalid_argument("its JSON is nested too deeply");
  return nlohmann::json::parse(text);
}

}  // namespace ddp

// Numbers as texts.
#pragma once

#include <array>
#include <cmath>
#include <cstdio>
#include <string>

namespace launcher {

// `pattern` takes one double, such as "%.3f s"; the result must have less than 64 bytes.
inline std::string formatted(const char* pattern, double value) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), pattern, value);
  return text.data();
}

// 0.25: "25 %"
inline std::string percent(double share) {
  return std::to_string(std::lround(share * 100)) + " %";
}

}  // namespace launcher

// Small files in a source.
#pragma once

#include <charconv>
#include <string>
#include <string_view>

namespace fuzz {

inline std::string from_hex(std::string_view digits) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < digits.size(); i += 2) {
    unsigned value = 0;
    std::from_chars(digits.data() + i, digits.data() + i + 2, value, 16);
    bytes += static_cast<char>(value);
  }
  return bytes;
}

}  // namespace fuzz

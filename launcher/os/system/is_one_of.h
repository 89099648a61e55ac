// Whether a value is one of a fixed list.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>

namespace launcher {

template <std::size_t count>
bool is_one_of(const std::array<std::string_view, count>& words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

}  // namespace launcher

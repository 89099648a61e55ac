// The store protocol's building blocks, for both ends: little-endian integers, and strings after their length.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace launcher::store {

template <typename Integer>
void append_integer(std::string& out, Integer value) {
  for (std::size_t i = 0; i < sizeof value; ++i)
    out.push_back(static_cast<char>(static_cast<std::uint64_t>(value) >> (8 * i)));
}

inline void append_text(std::string& out, std::string_view text) {
  append_integer(out, static_cast<std::uint64_t>(text.size()));
  out.append(text);
}

// `bytes` must hold at least sizeof(Integer).
template <typename Integer>
Integer read_integer(std::string_view bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < sizeof(Integer); ++i) {
    value |= static_cast<std::uint64_t>(static_cast<std::uint8_t>(bytes[i])) << (8 * i);
  }
  return static_cast<Integer>(value);
}

}  // namespace launcher::store

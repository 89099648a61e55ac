// Converts integers to and from little-endian bytes on any machine.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace ddp::detail {

template <std::integral Integer>
void append_integer(std::string& out, Integer value) {
  for (std::size_t i = 0; i < sizeof value; ++i) {
    out.push_back(static_cast<char>(static_cast<std::uint64_t>(value) >> (8 * i)));
  }
}

/// Reads the first sizeof(Integer) bytes. There must be at least that many.
template <std::integral Integer>
Integer read_integer(std::string_view bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < sizeof(Integer); ++i) {
    value |= static_cast<std::uint64_t>(static_cast<std::uint8_t>(bytes[i])) << (8 * i);
  }
  return static_cast<Integer>(value);
}

}  // namespace ddp::detail

// Fixed-width numbers in little-endian order, as protobuf and TFRecord store them, on any machine.
#pragma once

#include <concepts>
#include <cstddef>
#include <string>
#include <string_view>

namespace ddp::wire {

template <std::unsigned_integral Integer>
void append_little_endian(std::string& out, Integer value) {
  for (size_t byte = 0; byte < sizeof(Integer); ++byte) out.push_back(static_cast<char>(value >> (8 * byte)));
}

/// The first sizeof(Integer) bytes, which must be there.
template <std::unsigned_integral Integer>
Integer little_endian(std::string_view bytes) {
  Integer value = 0;
  for (size_t byte = 0; byte < sizeof(Integer); ++byte) {
    value |= static_cast<Integer>(static_cast<Integer>(static_cast<unsigned char>(bytes[byte])) << (8 * byte));
  }
  return value;
}

}  // namespace ddp::wire

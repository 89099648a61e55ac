// Internal: 16-bit floating-point numbers to and from float32, to the nearest and ties to even, without branches that
// would keep a loop from being vectorised. In an unnamed namespace: each instruction set compiles its own.
#pragma once

#include <bit>
#include <cstdint>

namespace ddp::shm {
namespace {

[[maybe_unused]] inline float bfloat_to_float(uint16_t value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value) << 16);
}

[[maybe_unused]] inline uint16_t float_to_bfloat(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
  return static_cast<uint16_t>(value != value ? 0x7FC0U : rounded);
}

[[maybe_unused]] inline float half_to_float(uint16_t value) {
  const uint32_t sign = static_cast<uint32_t>(value & 0x8000U) << 16;
  const uint32_t rest = static_cast<uint32_t>(value & 0x7FFFU) << 13;
  // The exponents' biases differ by 112; the product also makes subnormal numbers right.
  const auto finite = std::bit_cast<uint32_t>(std::bit_cast<float>(rest) * 0x1p112F);
  const bool is_special = (value & 0x7C00U) == 0x7C00U;
  return std::bit_cast<float>(sign | (is_special ? rest | 0x7F800000U : finite));
}

[[maybe_unused]] inline uint16_t float_to_half(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000U;
  const uint32_t magnitude = bits & 0x7FFFFFFFU;
  // Normal numbers: the new exponent, then rounding, which may carry into it and up to infinity.
  const uint32_t normal = (magnitude - (112U << 23) + 0xFFFU + ((magnitude >> 13) & 1U)) >> 13;
  // Below 2^-14: adding 0.5 puts the last bit that is kept where float32's addition rounds.
  const uint32_t subnormal = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) - 0x3F000000U;
  uint32_t result = magnitude < 0x38800000U ? subnormal : normal;
  result = magnitude >= 0x47800000U ? 0x7C00U : result;  // from 2^16 on
  result = magnitude > 0x7F800000U ? 0x7E00U : result;
  return static_cast<uint16_t>(sign | result);
}

}  // namespace
}  // namespace ddp::shm

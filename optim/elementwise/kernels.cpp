#include "optim/elementwise/kernels.h"

#include <bit>
#include <cmath>
#include <type_traits>

namespace ddp::optim {
namespace {

// The type in which ATen computes with numbers of type T.
template <typename T>
using ComputeType = std::conditional_t<std::is_same_v<T, BFloat16Bits>, float, T>;

template <typename T>
[[gnu::always_inline]] inline ComputeType<T> read(T value) {
  if constexpr (std::is_same_v<T, BFloat16Bits>) {
    return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16);
  } else {
    return value;
  }
}

// Rounds to the nearest number, ties to even. Every NaN becomes the NaN that ATen writes.
template <typename T>
[[gnu::always_inline]] inline T round(ComputeType<T> value) {
  if constexpr (std::is_same_v<T, BFloat16Bits>) {
    const auto bits = std::bit_cast<uint32_t>(value);
    const uint32_t nearest = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    return {static_cast<uint16_t>((bits & 0x7fffffff) > 0x7f800000 ? 0x7fc0 : nearest)};
  } else {
    return value;
  }
}

template <typename T>
ComputeType<T> rounded(double value) {
  return read(round<T>(static_cast<ComputeType<T>>(value)));
}

namespace portable {
#define DDP_TARGET
#include "optim/elementwise/loops.inc"
#undef DDP_TARGET
}  // namespace portable

#ifdef __x86_64__
namespace avx2 {
#define DDP_TARGET [[gnu::target("avx2,fma")]]
#include "optim/elementwise/loops.inc"
#undef DDP_TARGET
}  // namespace avx2
#endif

}  // namespace

template <typename T>
const Kernels<T>& kernels() {
  static constexpr Kernels<T> kPortable = portable::table<T>();
#ifdef __x86_64__
  static constexpr Kernels<T> kAvx2 = avx2::table<T>();
  static const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (has_avx2) return kAvx2;
#endif
  return kPortable;
}

template const Kernels<float>& kernels();
template const Kernels<double>& kernels();
template const Kernels<BFloat16Bits>& kernels();

}  // namespace ddp::optim

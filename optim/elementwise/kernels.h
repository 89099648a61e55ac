// Arithmetic on arrays with the bits of ATen's CPU kernels: a function rounds its result once to the array's type, as
// one ATen operator does, and fuses a multiplication with an addition where ATen does. ATen's square
// roots are MKL's, but for bfloat16: see square_roots.h. No LibTorch.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ddp::optim {

/// The bits of a bfloat16.
struct BFloat16Bits {
  uint16_t bits;
};

/// As many bfloat16 numbers as ATen's vectorised loops take at a time. It computes what remains of an array one by one,
/// and there a + alpha * b also rounds the product.
inline constexpr size_t kVectorStep = 32;

/// Loops over `size` numbers; `to` may be one of the operands. T is float, double or BFloat16Bits. Scalars are rounded
/// as ATen rounds them.
template <typename T>
struct Kernels {
  using Unary = void (*)(T* to, const T* a, size_t size);
  using Binary = void (*)(T* to, const T* a, const T* b, size_t size);
  using WithNumber = void (*)(T* to, const T* a, double number, size_t size);
  using Ternary = void (*)(T* to, const T* a, const T* b, const T* c, double value, size_t size);

  Unary negate, absolute, sign, reciprocal;
  Unary square_root;                 ///< correctly rounded, as ATen's are for bfloat16 only
  Binary multiply, divide, maximum;  ///< maximum: NaN where one of them is NaN
  WithNumber add_number, multiply_number, divide_number;
  Ternary addcmul;  ///< a + value * b * c
  Ternary addcdiv;  ///< a + value * b / c
  /// 1 / root of a; the numbers from `vectorised` on are those that ATen computes one by one, from the rounded root.
  void (*rsqrt)(T* to, const T* a, size_t size, size_t vectorised);
  /// a + alpha * b; the numbers from `vectorised` on are those that ATen computes one by one.
  void (*add_scaled)(T* to, const T* a, const T* b, double alpha, size_t size, size_t vectorised);
  /// a + weight * (b - a), computed from b when the weight is 0.5 or more.
  void (*lerp)(T* to, const T* a, const T* b, double weight, size_t size);
  /// NaN stays NaN.
  void (*clamp)(T* to, const T* a, double lowest, double highest, size_t size);
  /// `above` where a is positive, `below` where it is negative, else 1.
  void (*choose_by_sign)(T* to, const T* a, double above, double below, size_t size);
  /// 0 where b is `number`, else a.
  void (*zero_where)(T* to, const T* a, const T* b, double number, size_t size);
};

/// The loops for this processor.
template <typename T>
const Kernels<T>& kernels();

}  // namespace ddp::optim

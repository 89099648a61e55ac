// Arithmetic on arrays that gives the same bits as ATen's CPU kernels: each function rounds its result once to the
// array's type, as one ATen operator does, and fuses a multiplication with an addition where ATen does. The square
// roots are an exception: except for bfloat16, ATen uses MKL's (see square_roots.h). This header does not need
// LibTorch.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ddp::optim {

/// The bits of a bfloat16.
struct BFloat16Bits {
  uint16_t bits;
};

/// The number of bfloat16 elements that ATen's vectorised loops process per iteration. ATen computes the remaining
/// elements of an array one by one, and for those a + alpha * b also rounds the product.
inline constexpr size_t kVectorStep = 32;

/// Loops over `size` numbers; `to` may be one of the operands. T is float, double or BFloat16Bits. Scalars are rounded
/// as ATen rounds them.
template <typename T>
struct Kernels {
  using Unary = void (*)(T* to, const T* a, size_t size);
  using Binary = void (*)(T* to, const T* a, const T* b, size_t size);
  using ScalarKernel = void (*)(T* to, const T* a, double number, size_t size);
  using Ternary = void (*)(T* to, const T* a, const T* b, const T* c, double value, size_t size);

  Unary negate, absolute, sign, reciprocal;
  Unary square_root;                 ///< correctly rounded, which ATen's roots are for bfloat16 only
  Binary multiply, divide, maximum;  ///< maximum: NaN if either operand is NaN
  ScalarKernel add_number, multiply_number, divide_number;
  Ternary addcmul;  ///< a + value * b * c
  Ternary addcdiv;  ///< a + value * b / c
  /// 1 / sqrt(a). ATen computes the elements from index `vectorised` on one by one, from the rounded root.
  void (*rsqrt)(T* to, const T* a, size_t size, size_t vectorised);
  /// a + alpha * b. ATen computes the elements from index `vectorised` on one by one.
  void (*add_scaled)(T* to, const T* a, const T* b, double alpha, size_t size, size_t vectorised);
  /// a + weight * (b - a), computed from b if the weight is 0.5 or more.
  void (*lerp)(T* to, const T* a, const T* b, double weight, size_t size);
  /// NaN stays NaN.
  void (*clamp)(T* to, const T* a, double lowest, double highest, size_t size);
  /// `above` where a is positive, `below` where it is negative, 1 elsewhere.
  void (*choose_by_sign)(T* to, const T* a, double above, double below, size_t size);
  /// 0 where b equals `number`, a elsewhere.
  void (*zero_where)(T* to, const T* a, const T* b, double number, size_t size);
};

/// Returns the loops for this processor.
template <typename T>
const Kernels<T>& kernels();

}  // namespace ddp::optim

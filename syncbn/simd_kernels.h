// Internal: batch norm arithmetic on plain memory, compiled once per instruction set. The instruction set is chosen at
// run time, as in LibTorch's own kernels; otherwise these kernels would be slower.
#pragma once

#include <cstdint>

namespace ddp::detail {

/// The bit patterns of c10::BFloat16 and c10::Half. The headers of these types must not be included here: the linker
/// could keep an inline function that was compiled for AVX2 and use it in the whole program.
struct BFloat16Bits {
  uint16_t bits;
};
struct HalfBits {
  uint16_t bits;
};

/// The type in which elementwise results are computed. Reductions are always computed in double.
template <typename T>
struct Compute {
  using Type = float;
};
template <>
struct Compute<double> {
  using Type = double;
};

/// The count, the mean, and the sum of squared deviations from the mean, for one channel.
struct Moments {
  double count = 0;
  double mean = 0;
  double m2 = 0;
};

/// The sum of the output's gradient, and the sum of its product with the input's deviation from the mean, for one
/// channel.
struct GradientSums {
  double dy = 0;
  double dy_xmu = 0;
};

/// y = (x - center) * scale + shift
template <typename A>
struct Affine {
  A center;
  A scale;
  A shift;
};

/// dx = dy * dy_scale + (x - center) * x_scale + shift
template <typename A>
struct GradientAffine {
  A center;
  A dy_scale;
  A x_scale;
  A shift;
};

/// Kernels for elements of type T. "run" kernels process `n` consecutive elements of one channel. "rows" kernels
/// process `rows` rows, `stride` elements apart, with `width` channels each and one coefficient per channel.
template <typename T>
struct SimdKernels {
  using A = typename Compute<T>::Type;
  void (*run_moments)(const T* x, int64_t n, Moments& into);
  void (*run_sums)(const T* dy, const T* x, int64_t n, double mean, GradientSums& into);
  void (*run_normalize)(const T* x, T* y, int64_t n, const Affine<A>& affine);
  void (*run_gradient)(const T* dy, const T* x, T* dx, int64_t n, const GradientAffine<A>& affine);

  /// `mean` and `m2` already contain the values of `seen` rows.
  void (*row_moments)(const T* x, int64_t rows, int64_t stride, int64_t width, double seen, double* mean, double* m2);
  void (*row_sums)(const T* dy, const T* x, int64_t rows, int64_t stride, int64_t width, const double* mean,
                   double* sum_dy, double* sum_dy_xmu);
  void (*row_normalize)(const T* x, T* y, int64_t rows, int64_t stride, int64_t width, const A* center, const A* scale,
                        const A* shift);
  void (*row_gradient)(const T* dy, const T* x, T* dx, int64_t rows, int64_t stride, int64_t width, const A* center,
                       const A* dy_scale, const A* x_scale, const A* shift);
};

/// All kernels of one instruction set.
struct SimdLevel {
  const char* name;
  SimdKernels<float> f32;
  SimdKernels<double> f64;
  SimdKernels<BFloat16Bits> bf16;
  SimdKernels<HalfBits> f16;

  /// Returns the kernels for elements of type T.
  template <typename T>
  const SimdKernels<T>& kernels() const;
};

template <>
inline const SimdKernels<float>& SimdLevel::kernels() const {
  return f32;
}
template <>
inline const SimdKernels<double>& SimdLevel::kernels() const {
  return f64;
}
template <>
inline const SimdKernels<BFloat16Bits>& SimdLevel::kernels() const {
  return bf16;
}
template <>
inline const SimdKernels<HalfBits>& SimdLevel::kernels() const {
  return f16;
}

/// Stores the levels that this machine supports, the fastest first, and returns their number.
int supported_simd_levels(const SimdLevel* (&levels)[2]);

/// Returns the level to use.
const SimdLevel& simd_level();

}  // namespace ddp::detail

// Internal: the kernels of simd_kernels.h. One source file per instruction set defines DDPRUN_SIMD_LEVEL and includes
// this file. Nothing in this file or its includes may have external linkage, except one object per source file. The
// loops have `omp simd` pragmas because a compiler may not reorder floating-point sums without them.

#include "syncbn/simd_kernels.h"

namespace ddp::detail {
namespace {

using size = int64_t;

// A block is read twice, for its mean and for the deviations from it, so it must fit into the first-level cache.
constexpr size kBlock = 1024;
constexpr size kRowBlock = 64;
constexpr size kTile = 64;
constexpr size kLanes = 32;

inline float load(float value) {
  return value;
}
inline double load(double value) {
  return value;
}
inline float load(BFloat16Bits value) {
  return __builtin_bit_cast(float, static_cast<uint32_t>(value.bits) << 16);
}
inline float load(HalfBits value) {
  return static_cast<float>(__builtin_bit_cast(_Float16, value.bits));
}

inline void store(float& to, float value) {
  to = value;
}
inline void store(double& to, double value) {
  to = value;
}
inline void store(BFloat16Bits& to, float value) {  // rounds to nearest, ties to even; a NaN stays a NaN
  const auto bits = __builtin_bit_cast(uint32_t, value);
  const uint32_t rounded = (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
  to.bits = static_cast<uint16_t>(value == value ? rounded : 0x7FC0U);
}
inline void store(HalfBits& to, float value) {
  to.bits = __builtin_bit_cast(uint16_t, static_cast<_Float16>(value));
}

inline size smaller(size a, size b) {
  return a < b ? a : b;
}

// Chan, Golub, LeVeque, "Algorithms for computing the sample variance", 1983: numerically stable, unlike sums of
// squares.
inline void merge(Moments& into, double count, double mean, double m2) {
  const double total = into.count + count;
  const double delta = mean - into.mean;
  const double share = count / total;
  into.mean += delta * share;
  into.m2 += m2 + delta * delta * into.count * share;
  into.count = total;
}

// Sums are computed in many lanes, because with a single lane each addition would wait for the previous one.
inline double sum_of_lanes(const double (&lanes)[kLanes]) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (size lane = 0; lane < kLanes; ++lane) sum += lanes[lane];
  return sum;
}

// Returns the sum of `term(value)` over n values.
template <typename T, typename Term>
inline double sum_of(const T* x, size n, Term term) {
  double lanes[kLanes] = {};
  size i = 0;
  for (; i + kLanes <= n; i += kLanes) {
#pragma omp simd
    for (size lane = 0; lane < kLanes; ++lane) lanes[lane] += term(static_cast<double>(load(x[i + lane])));
  }
  for (size lane = 0; i < n; ++i, ++lane) lanes[lane] += term(static_cast<double>(load(x[i])));
  return sum_of_lanes(lanes);
}

template <typename T>
void run_moments(const T* x, size n, Moments& into) {
  for (size begin = 0; begin < n; begin += kBlock) {
    const T* block = x + begin;
    const size count = smaller(kBlock, n - begin);
    const double mean = sum_of(block, count, [](double value) { return value; }) / static_cast<double>(count);
    const double m2 = sum_of(block, count, [mean](double value) { return (value - mean) * (value - mean); });
    merge(into, static_cast<double>(count), mean, m2);
  }
}

template <typename T>
void run_sums(const T* dy, const T* x, size n, double mean, GradientSums& into) {
  double sums[kLanes] = {};
  double products[kLanes] = {};
  size i = 0;
  for (; i + kLanes <= n; i += kLanes) {
#pragma omp simd
    for (size lane = 0; lane < kLanes; ++lane) {
      const auto gradient = static_cast<double>(load(dy[i + lane]));
      sums[lane] += gradient;
      products[lane] += gradient * (static_cast<double>(load(x[i + lane])) - mean);
    }
  }
  for (size lane = 0; i < n; ++i, ++lane) {
    const auto gradient = static_cast<double>(load(dy[i]));
    sums[lane] += gradient;
    products[lane] += gradient * (static_cast<double>(load(x[i])) - mean);
  }
  into.dy += sum_of_lanes(sums);
  into.dy_xmu += sum_of_lanes(products);
}

template <typename T>
void run_normalize(const T* x, T* y, size n, const Affine<typename Compute<T>::Type>& affine) {
  const auto [center, scale, shift] = affine;
#pragma omp simd
  for (size i = 0; i < n; ++i) store(y[i], (load(x[i]) - center) * scale + shift);
}

template <typename T>
void run_gradient(const T* dy, const T* x, T* dx, size n, const GradientAffine<typename Compute<T>::Type>& affine) {
  const auto [center, dy_scale, x_scale, shift] = affine;
#pragma omp simd
  for (size i = 0; i < n; ++i) store(dx[i], load(dy[i]) * dy_scale + ((load(x[i]) - center) * x_scale + shift));
}

template <typename T>
void row_moments(const T* x, size rows, size stride, size width, double seen, double* mean, double* m2) {
  for (size begin = 0; begin < rows; begin += kRowBlock) {
    const size count = smaller(kRowBlock, rows - begin);
    const double share = static_cast<double>(count) / (seen + static_cast<double>(count));
    for (size first = 0; first < width; first += kTile) {
      const size columns = smaller(kTile, width - first);
      const T* block = x + begin * stride + first;
      double block_mean[kTile] = {};
      double block_m2[kTile] = {};
      for (size r = 0; r < count; ++r) {
#pragma omp simd
        for (size c = 0; c < columns; ++c) block_mean[c] += static_cast<double>(load(block[r * stride + c]));
      }
      for (size c = 0; c < columns; ++c) block_mean[c] /= static_cast<double>(count);
      for (size r = 0; r < count; ++r) {
#pragma omp simd
        for (size c = 0; c < columns; ++c) {
          const double deviation = static_cast<double>(load(block[r * stride + c])) - block_mean[c];
          block_m2[c] += deviation * deviation;
        }
      }
#pragma omp simd
      for (size c = 0; c < columns; ++c) {  // the same formula as in merge()
        const double delta = block_mean[c] - mean[first + c];
        mean[first + c] += delta * share;
        m2[first + c] += block_m2[c] + delta * delta * seen * share;
      }
    }
    seen += static_cast<double>(count);
  }
}

template <typename T>
void row_sums(const T* dy, const T* x, size rows, size stride, size width, const double* mean, double* sum_dy,
              double* sum_dy_xmu) {
  for (size first = 0; first < width; first += kTile) {
    const size columns = smaller(kTile, width - first);
    double sum[kTile] = {};
    double product[kTile] = {};
    for (size r = 0; r < rows; ++r) {
      const T* gradients = dy + r * stride + first;
      const T* values = x + r * stride + first;
#pragma omp simd
      for (size c = 0; c < columns; ++c) {
        const auto gradient = static_cast<double>(load(gradients[c]));
        sum[c] += gradient;
        product[c] += gradient * (static_cast<double>(load(values[c])) - mean[first + c]);
      }
    }
    for (size c = 0; c < columns; ++c) {
      sum_dy[first + c] += sum[c];
      sum_dy_xmu[first + c] += product[c];
    }
  }
}

template <typename T, typename A>
void row_normalize(const T* x, T* y, size rows, size stride, size width, const A* center, const A* scale,
                   const A* shift) {
  for (size r = 0; r < rows; ++r) {
    const T* from = x + r * stride;
    T* to = y + r * stride;
#pragma omp simd
    for (size c = 0; c < width; ++c) store(to[c], (load(from[c]) - center[c]) * scale[c] + shift[c]);
  }
}

template <typename T, typename A>
void row_gradient(const T* dy, const T* x, T* dx, size rows, size stride, size width, const A* center,
                  const A* dy_scale, const A* x_scale, const A* shift) {
  for (size r = 0; r < rows; ++r) {
    const T* gradients = dy + r * stride;
    const T* values = x + r * stride;
    T* to = dx + r * stride;
#pragma omp simd
    for (size c = 0; c < width; ++c)
      store(to[c], load(gradients[c]) * dy_scale[c] + ((load(values[c]) - center[c]) * x_scale[c] + shift[c]));
  }
}

template <typename T>
constexpr SimdKernels<T> kernels() {
  return {run_moments<T>, run_sums<T>, run_normalize<T>, run_gradient<T>,
          row_moments<T>, row_sums<T>, row_normalize<T>, row_gradient<T>};
}

}  // namespace

extern const SimdLevel DDPRUN_SIMD_LEVEL;
constinit const SimdLevel DDPRUN_SIMD_LEVEL{.name = DDPRUN_SIMD_NAME,
                                            .f32 = kernels<float>(),
                                            .f64 = kernels<double>(),
                                            .bf16 = kernels<BFloat16Bits>(),
                                            .f16 = kernels<HalfBits>()};

}  // namespace ddp::detail

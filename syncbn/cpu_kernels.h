// Internal: batch norm's loops over a dense CPU tensor (N, C, …) in either memory format, on all of LibTorch's threads.
// Reductions are in double, and their results do not depend on the number of threads.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "syncbn/simd_kernels.h"

namespace ddp::detail {

/// (x - mean) * scale + shift, in the type and strides of `x`, which is not empty.
at::Tensor apply_affine(const SimdLevel& level, const at::Tensor& x, const double* mean,
                        const std::vector<double>& scale, const std::vector<double>& shift);

/// dy * dy_scale + (x - mean) * x_scale + shift, in the type and strides of `x`, which are those of `dy`.
at::Tensor apply_gradient_affine(const SimdLevel& level, const at::Tensor& dy, const at::Tensor& x, const double* mean,
                                 const std::vector<double>& dy_scale, const std::vector<double>& x_scale,
                                 const std::vector<double>& shift);

/// Mean and sum of squared deviations from it, `x.size(1)` numbers each. `x` is not empty.
void channel_moments(const SimdLevel& level, const at::Tensor& x, double* mean, double* m2);

/// Sums of dy and of dy·(x - mean), `x.size(1)` numbers each. `dy` has the strides of `x`, which is not empty.
void channel_gradient_sums(const SimdLevel& level, const at::Tensor& dy, const at::Tensor& x, const double* mean,
                           double* sum_dy, double* sum_dy_xmu);

}  // namespace ddp::detail

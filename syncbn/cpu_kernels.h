// Internal: loops of batch norm over a dense CPU tensor (N, C, …) in either memory format. They use all of LibTorch's
// threads. Reductions are in double, and their results do not depend on the number of threads.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "syncbn/simd_kernels.h"

namespace ddp::detail {

/// Computes (x - mean) * scale + shift, in the type and strides of `x`, which must not be empty.
at::Tensor apply_affine(const SimdLevel& level, const at::Tensor& x, const double* mean,
                        const std::vector<double>& scale, const std::vector<double>& shift);

/// Computes dy * dy_scale + (x - mean) * x_scale + shift, in the type and strides of `x`. `dy` has the same strides.
at::Tensor apply_gradient_affine(const SimdLevel& level, const at::Tensor& dy, const at::Tensor& x, const double* mean,
                                 const std::vector<double>& dy_scale, const std::vector<double>& x_scale,
                                 const std::vector<double>& shift);

/// Computes the mean and the sum of squared deviations from it, `x.size(1)` numbers each. `x` must not be empty.
void channel_moments(const SimdLevel& level, const at::Tensor& x, double* mean, double* m2);

/// Computes the sums of dy and of dy·(x - mean), `x.size(1)` numbers each. `dy` has the strides of `x`, which must not
/// be empty.
void channel_gradient_sums(const SimdLevel& level, const at::Tensor& dy, const at::Tensor& x, const double* mean,
                           double* sum_dy, double* sum_dy_xmu);

}  // namespace ddp::detail

// Internal: per-channel reductions over a dense CPU tensor (N, C, …) in either memory format, in double, on all of
// LibTorch's threads. The result does not depend on the number of threads.
#pragma once

#include <ATen/core/Tensor.h>

#include "syncbn/simd_kernels.h"

namespace ddp::detail {

/// Mean and sum of squared deviations from it, `x.size(1)` numbers each. `x` is not empty.
void channel_moments(const SimdLevel& level, const at::Tensor& x, double* mean, double* m2);

/// Sums of dy and of dy·(x - mean), `x.size(1)` numbers each. `dy` has the strides of `x`, which is not empty.
void channel_gradient_sums(const SimdLevel& level, const at::Tensor& dy, const at::Tensor& x, const double* mean,
                           double* sum_dy, double* sum_dy_xmu);

}  // namespace ddp::detail

// Internal: the elementwise parts of batch norm on a dense CPU tensor (N, C, …) in either memory format, on all of
// LibTorch's threads. Coefficients have one number per channel.
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

}  // namespace ddp::detail

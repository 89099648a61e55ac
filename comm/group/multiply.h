// Products with numbers as Python computes them.
#pragma once

#include <ATen/ScalarOps.h>
#include <ATen/core/Tensor.h>

namespace ddp {

/// Multiplies `tensor` by `factor` in place and rounds once, as Python's tensor.mul_(factor): tensor.mul_(factor) in
/// C++ rounds the factor to the tensor's dtype before, on the CPU, so that 16 bits times 1/3 has an error twice.
inline void multiply(const at::Tensor& tensor, double factor) {
  if (factor != 1.0) tensor.mul_(at::native::wrapped_scalar_tensor(factor));
}

}  // namespace ddp

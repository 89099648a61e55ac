// Another dtype for a whole module, as Python's. Reference: torch.nn.Module.to.
#pragma once

#include <c10/core/ScalarType.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

namespace ddp::nn {

/// Makes the floating-point parameters, gradients and buffers of `module` `dtype`, and leaves others: Python's
/// module.to(dtype). LibTorch's own to() converts integers as well, so that batch norms count in 16 bits. Tensors stay
/// the same objects, so optimizers keep them. Throws std::invalid_argument when `dtype` is no floating-point type.
void to_dtype(torch::nn::Module& module, c10::ScalarType dtype);

/// The same for a module in a holder.
template <typename Contained>
void to_dtype(const torch::nn::ModuleHolder<Contained>& module, c10::ScalarType dtype) {
  to_dtype(*module.ptr(), dtype);
}

}  // namespace ddp::nn

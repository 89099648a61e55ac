// What the fused kernels can take as gradients.
#pragma once

#include <torch/optim/optimizer.h>

#include <string>
#include <vector>

namespace ddp::optim {

/// Throws std::invalid_argument, naming the optimizer `type`, unless every gradient in `groups` is dense, of its
/// parameter's shape and dtype and on its device, and every parameter that has one is of a floating-point type on the
/// CPU or CUDA.
void check_gradients(const std::vector<torch::optim::OptimizerParamGroup>& groups, const std::string& type);

}  // namespace ddp::optim

// Checks that the fused kernels can process the gradients.
#pragma once

#include <torch/optim/optimizer.h>

#include <string>
#include <vector>

namespace ddp::optim {

/// Throws std::invalid_argument, naming the optimizer `type`, unless every gradient in `groups` is dense and has its
/// parameter's shape, dtype and device, and every parameter with a gradient has a floating-point dtype and is on the
/// CPU or on CUDA.
void check_gradients(const std::vector<torch::optim::OptimizerParamGroup>& groups, const std::string& type);

}  // namespace ddp::optim

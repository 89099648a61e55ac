// Parameters that are the same in all processes and threads, without a random generator.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <torch/nn/module.h>

namespace ddp::test {

/// Ranks may be threads that draw from one generator: this draws nothing.
inline void fill_parameters(torch::nn::Module& module) {
  const at::NoGradGuard no_grad;
  double phase = 0.1;
  for (at::Tensor& parameter : module.parameters()) {
    const at::Tensor numbers = at::arange(parameter.numel(), at::kDouble);
    parameter.copy_((numbers * 0.7 + phase).sin().mul(0.4).view(parameter.sizes()));
    phase += 1;
  }
}

}  // namespace ddp::test

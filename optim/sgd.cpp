#include "optim/sgd.h"

#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/zeros_like.h>

#include "optim/groups.h"

namespace ddp::optim {

SGD::SGD(const std::vector<torch::optim::OptimizerParamGroup>& groups, SGDOptions defaults)
    : LocalOptimizer(groups, checked(defaults), {{.name = "momentum_buffer"}}) {
  for (auto& group : param_groups_) check_group(group);
}

SGD::SGD(std::vector<at::Tensor> parameters, SGDOptions defaults)
    : SGD(one_group(std::move(parameters)), std::move(defaults)) {}

void SGD::check_group(torch::optim::OptimizerParamGroup& group) const {
  use_options<SGDOptions>(group, "SGD");
}

bool SGD::prepare_state(const at::Tensor& parameter, const torch::optim::OptimizerOptions& options,
                        LocalState& state) const {
  auto& momentum_buffer = state.tensors[0];
  if (momentum_buffer.defined() || static_cast<const SGDOptions&>(options).momentum() == 0) return false;
  momentum_buffer = at::zeros_like(parameter);
  return true;
}

void SGD::run_kernel(const torch::optim::OptimizerOptions& options, FusedBatch& batch,
                     const GradientScaling& scaling) const {
  const auto& sgd = static_cast<const SGDOptions&>(options);
  const std::vector<at::Tensor> none;
  // LibTorch 2.11's kernel for the CPU moves float16 and bfloat16 parameters by unset values in a first step. With
  // momentum zero and no dampening an ordinary step is what the first should be.
  const bool is_broken = batch.first_step && batch.device.is_cpu() && c10::isReducedFloatingType(batch.dtype);
  at::_fused_sgd_(batch.parameters, batch.gradients, sgd.momentum() == 0 ? none : batch.state[0], sgd.weight_decay(),
                  sgd.momentum(), sgd.lr(), is_broken ? 0.0 : sgd.dampening(), sgd.nesterov(), sgd.maximize(),
                  batch.first_step && !is_broken, as_optional(scaling.grad_scale), as_optional(scaling.found_inf));
}

}  // namespace ddp::optim

#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/zeros_like.h>

#include "ddprun/optim/optimizers.h"
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
  const auto run = [&](at::TensorList parameters, at::TensorList gradients, at::TensorList momenta) {
    with_rate(sgd, sgd.lr(), batch.device, [&](const auto& rate) {
      at::_fused_sgd_(parameters, gradients, momenta, sgd.weight_decay(), sgd.momentum(), rate, sgd.dampening(),
                      sgd.nesterov(), sgd.maximize(), batch.first_step, as_optional(scaling.grad_scale),
                      as_optional(scaling.found_inf));
    });
  };
  const std::vector<at::Tensor> none;
  const auto& momenta = sgd.momentum() == 0 ? none : batch.state[0];
  if (!batch.device.is_cpu() || !c10::isReducedFloatingType(batch.dtype)) {
    run(batch.parameters, batch.gradients, momenta);
    return;
  }
  // LibTorch 2.11's CPU kernel uses uninitialised values for float16 and bfloat16 parameters.
  std::array<std::vector<at::Tensor>, 3> wide;
  const std::array<const std::vector<at::Tensor>*, 3> originals = {&batch.parameters, &batch.gradients, &momenta};
  for (size_t i = 0; i < wide.size(); ++i) {
    for (const auto& tensor : *originals[i]) wide[i].push_back(tensor.to(at::kFloat));
  }
  run(wide[0], wide[1], wide[2]);
  for (size_t i = 0; i < wide.size(); ++i) {
    for (size_t j = 0; j < wide[i].size(); ++j) (*originals[i])[j].copy_(wide[i][j]);
  }
}

}  // namespace ddp::optim

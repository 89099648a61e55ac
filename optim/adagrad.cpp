#include <ATen/ops/_fused_adagrad.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/zeros.h>

#include "ddprun/optim/optimizers.h"
#include "optim/groups.h"

namespace ddp::optim {
namespace {

enum AdagradField : size_t { kSteps, kSum };

// LibTorch's kernel accepts a learning rate in a tensor since version 2.12.
template <typename Rate>
requires requires(at::TensorList list, const Rate& rate) {
  at::_fused_adagrad_(list, list, list, list, rate, 0., 0., 0., false);
}
void call_adagrad(const AdagradOptions& options, FusedBatch& batch, const GradientScaling& scaling, const Rate& rate) {
  at::_fused_adagrad_(batch.parameters, batch.gradients, batch.state[kSum], batch.state[kSteps], rate,
                      options.lr_decay(), options.weight_decay(), options.eps(), options.maximize(),
                      as_optional(scaling.grad_scale), as_optional(scaling.found_inf));
}

}  // namespace

Adagrad::Adagrad(const std::vector<torch::optim::OptimizerParamGroup>& groups, AdagradOptions defaults)
    : LocalOptimizer(groups, checked(defaults), {{.name = "step", .is_step = true}, {.name = "sum"}}) {
  for (auto& group : param_groups_) {
    check_group(group);
    // The state is created here and not at the first step, because Python and LibTorch also save it before any step.
    for (const auto& parameter : group.params()) prepare_state(parameter, group.options(), state_of(parameter));
  }
}

Adagrad::Adagrad(std::vector<at::Tensor> parameters, AdagradOptions defaults)
    : Adagrad(one_group(std::move(parameters)), std::move(defaults)) {}

void Adagrad::check_group(torch::optim::OptimizerParamGroup& group) const {
  use_options<AdagradOptions>(group, "Adagrad");
}

bool Adagrad::prepare_state(const at::Tensor& parameter, const torch::optim::OptimizerOptions&,
                            LocalState& state) const {
  if (state.tensors[kSteps].defined()) return false;
  // All groups start with the constructor's value, as in Python and LibTorch.
  const auto initial = static_cast<const AdagradOptions&>(*defaults_).initial_accumulator_value();
  state.tensors[kSteps] = at::zeros({}, at::TensorOptions().dtype(at::kFloat).device(parameter.device()));
  state.tensors[kSum] = at::full_like(parameter.detach(), initial);
  return false;
}

void Adagrad::run_kernel(const torch::optim::OptimizerOptions& options, FusedBatch& batch,
                         const GradientScaling& scaling) const {
  const auto& adagrad = static_cast<const AdagradOptions&>(options);
  with_rate(
      adagrad, adagrad.lr(), batch.device,
      [&]<typename Rate>(const Rate& rate) requires requires { call_adagrad(adagrad, batch, scaling, rate); } {
        call_adagrad(adagrad, batch, scaling, rate);
      });
}

}  // namespace ddp::optim

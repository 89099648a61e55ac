#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "ddprun/optim/optimizers.h"
#include "optim/groups.h"

namespace ddp::optim {
namespace {

enum AdamField : size_t { kStep, kExpAvg, kExpAvgSq, kMaxExpAvgSq };

std::vector<StateField> adam_fields() {
  return {{.name = "step", .is_step = true},
          {.name = "exp_avg"},
          {.name = "exp_avg_sq"},
          {.name = "max_exp_avg_sq", .optional = true}};
}

void prepare_adam_state(const at::Tensor& parameter, bool amsgrad, LocalState& state) {
  if (!state.tensors[kStep].defined()) {
    state.tensors[kStep] = at::zeros({}, at::TensorOptions().dtype(at::kFloat).device(parameter.device()));
    state.tensors[kExpAvg] = at::zeros_like(parameter);
    state.tensors[kExpAvgSq] = at::zeros_like(parameter);
  }
  if (amsgrad && !state.tensors[kMaxExpAvgSq].defined()) state.tensors[kMaxExpAvgSq] = at::zeros_like(parameter);
}

template <typename Options, typename Kernel>
void run_adam(const Options& options, FusedBatch& batch, const GradientScaling& scaling, Kernel kernel) {
  const auto [beta1, beta2] = options.betas();
  const std::vector<at::Tensor> none;
  with_rate(options, options.lr(), batch.device, [&, beta1 = beta1, beta2 = beta2](const auto& rate) {
    kernel(batch.parameters, batch.gradients, batch.state[kExpAvg], batch.state[kExpAvgSq],
           options.amsgrad() ? batch.state[kMaxExpAvgSq] : none, batch.state[kStep], rate, beta1, beta2,
           options.weight_decay(), options.eps(), options.amsgrad(), options.maximize(),
           as_optional(scaling.grad_scale), as_optional(scaling.found_inf));
  });
}

}  // namespace

Adam::Adam(const std::vector<torch::optim::OptimizerParamGroup>& groups, AdamOptions defaults)
    : LocalOptimizer(groups, checked(defaults), adam_fields()) {
  for (auto& group : param_groups_) check_group(group);
}

Adam::Adam(std::vector<at::Tensor> parameters, AdamOptions defaults)
    : Adam(one_group(std::move(parameters)), std::move(defaults)) {}

void Adam::check_group(torch::optim::OptimizerParamGroup& group) const {
  use_options<AdamOptions>(group, "Adam");
}

bool Adam::prepare_state(const at::Tensor& parameter, const torch::optim::OptimizerOptions& options,
                         LocalState& state) const {
  prepare_adam_state(parameter, static_cast<const AdamOptions&>(options).amsgrad(), state);
  return false;
}

void Adam::run_kernel(const torch::optim::OptimizerOptions& options, FusedBatch& batch,
                      const GradientScaling& scaling) const {
  run_adam(static_cast<const AdamOptions&>(options), batch, scaling,
           [](auto&&... arguments) { at::_fused_adam_(arguments...); });
}

AdamW::AdamW(const std::vector<torch::optim::OptimizerParamGroup>& groups, AdamWOptions defaults)
    : LocalOptimizer(groups, checked(defaults), adam_fields()) {
  for (auto& group : param_groups_) check_group(group);
}

AdamW::AdamW(std::vector<at::Tensor> parameters, AdamWOptions defaults)
    : AdamW(one_group(std::move(parameters)), std::move(defaults)) {}

void AdamW::check_group(torch::optim::OptimizerParamGroup& group) const {
  use_options<AdamWOptions>(group, "AdamW");
}

bool AdamW::prepare_state(const at::Tensor& parameter, const torch::optim::OptimizerOptions& options,
                          LocalState& state) const {
  prepare_adam_state(parameter, static_cast<const AdamWOptions&>(options).amsgrad(), state);
  return false;
}

void AdamW::run_kernel(const torch::optim::OptimizerOptions& options, FusedBatch& batch,
                       const GradientScaling& scaling) const {
  run_adam(static_cast<const AdamWOptions&>(options), batch, scaling,
           [](auto&&... arguments) { at::_fused_adamw_(arguments...); });
}

}  // namespace ddp::optim

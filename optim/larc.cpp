#include "ddprun/optim/larc.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/where.h>

#include <stdexcept>

#include <ddprun/detail/comm/device_copy.h>
#include <ddprun/detail/comm/shard_group.h>
#include <ddprun/detail/optim/own_optimizer.h>
#include <ddprun/optim/optimizers.h>

#include "base/rank_prefix.h"

namespace ddp::optim::detail {
namespace {

double& weight_decay_of(torch::optim::OptimizerOptions& options) {
  if (auto* sgd = dynamic_cast<torch::optim::SGDOptions*>(&options)) return sgd->weight_decay();
  if (auto* adam = dynamic_cast<torch::optim::AdamOptions*>(&options)) return adam->weight_decay();
  if (auto* adamw = dynamic_cast<torch::optim::AdamWOptions*>(&options)) return adamw->weight_decay();
  if (auto* adagrad = dynamic_cast<torch::optim::AdagradOptions*>(&options)) return adagrad->weight_decay();
  if (auto* listed = dynamic_cast<ListedOptions*>(&options)) {
    if (auto* decay = listed->find<double>("weight_decay")) return *decay;
  }
  throw std::invalid_argument(rank_prefix() + "Larc: these options have no weight decay");
}

}  // namespace

SuspendedWeightDecay::SuspendedWeightDecay(std::vector<torch::optim::OptimizerParamGroup>& groups) : groups_(groups) {
  for (const auto& group : groups_) {
    refuse_shards(group.params(), "Larc",
                  "Its rates need the norms of whole parameters: step the optimizer without Larc.");
  }
  for (auto& group : groups_) values_.push_back(weight_decay_of(group.options()));
  for (auto& group : groups_) weight_decay_of(group.options()) = 0;
}

SuspendedWeightDecay::~SuspendedWeightDecay() {
  for (size_t i = 0; i < groups_.size(); ++i) weight_decay_of(groups_[i].options()) = values_[i];
}

void adapt_gradients(const torch::optim::OptimizerParamGroup& group, double weight_decay, const LarcOptions& options,
                     const GradientScaling& scaling) {
  const auto* tensor = dynamic_cast<const RateTensor*>(&group.options());
  const bool has_tensor = tensor != nullptr && tensor->lr_tensor().defined();
  const double lr = has_tensor ? 1 : group.options().get_lr();
  for (const auto& parameter : group.params()) {
    const at::Tensor& gradient = parameter.grad();
    if (!gradient.defined()) continue;
    // Computed at least in float32: the norm of a float16 layer easily exceeds the range of float16.
    const auto wide = at::promote_types(parameter.scalar_type(), at::kFloat);
    const auto parameter_norm = parameter.to(wide).norm();
    auto gradient_norm = gradient.to(wide).norm();
    at::Tensor scale;
    if (scaling.grad_scale.defined()) {
      scale = to_device(scaling.grad_scale, gradient.device());
      gradient_norm = gradient_norm / scale;
    }
    auto rate =
        options.trust_coefficient * parameter_norm / (gradient_norm + parameter_norm * weight_decay + options.eps);
    // This does not wait for the device.
    if (options.clip && has_tensor) rate = rate / to_device(tensor->lr_tensor(), rate.device());
    if (options.clip) rate = (rate / lr).clamp_max(1.0);
    // A layer of zeros, or a layer without a gradient, gets a plain step without weight decay.
    const auto adapts = parameter_norm.ne(0).logical_and(gradient_norm.ne(0));
    auto decay = at::where(adapts, weight_decay, 0.0).to(wide);
    rate = at::where(adapts, rate, at::ones_like(rate));
    if (scale.defined()) decay = decay * scale;
    gradient.add_(parameter * decay).mul_(rate);
  }
}

}  // namespace ddp::optim::detail

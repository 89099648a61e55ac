// initialize() checks all arguments before it changes anything, so that a refused call has no effect.
#include <algorithm>
#include <stdexcept>

#include <ddprun/amp/amp.h>
#include <ddprun/optim/fused_optimizer.h>
#include <ddprun/optim/zero_redundancy_optimizer.h>

#include "amp/amp_state.h"
#include "amp/model_cast.h"
#include "amp/rank_prefix.h"

namespace ddp::amp {
namespace {

using torch::optim::Optimizer;

c10::DeviceType device_of(const Models& models) {
  for (const AnyModuleRef& model : models.all()) {
    for (const at::Tensor& parameter : model.get().parameters()) {
      if (parameter.defined()) return parameter.device().type();
    }
  }
  return c10::kCPU;
}

void check_models(const Models& models, const std::string& rank) {
  if (models.all().empty()) throw std::invalid_argument(rank + "amp.initialize: no model was given");
  for (const AnyModuleRef& model : models.all()) {
    require_unwrapped(model.get(), rank +
                                       "amp.initialize: Incoming model is an instance of DistributedDataParallel. "
                                       "Parallel wrappers should only be applied to the model(s) AFTER \nthe model(s) "
                                       "have been returned from amp.initialize");
    detail::require_float(model.get(), rank);
  }
}

void check_optimizers(const Optimizers& optimizers, const Properties& properties, const std::string& rank) {
  std::unordered_set<const Optimizer*> seen;
  for (const Optimizer& optimizer : optimizers.all()) {
    const auto parameters = master_params(optimizer);
    const bool again = std::ranges::any_of(
        parameters, [](const at::Tensor& parameter) { return is_marked(parameter, MarkKind::kMixedPrecision); });
    if (!seen.insert(&optimizer).second || again) {
      throw std::runtime_error(rank + "A given optimizer should only be passed through amp.initialize once.");
    }
    for (const at::Tensor& parameter : parameters) {
      const auto type = parameter.scalar_type();
      const bool known = type == at::kFloat || type == at::kHalf || type == at::kBFloat16;
      if (known || !parameter.requires_grad()) continue;
      throw std::invalid_argument(rank +
                                  "Optimizer's parameters must be either torch.cuda.FloatTensor or "
                                  "torch.cuda.HalfTensor. Received " +
                                  parameter.toString());
    }
    if (properties.master_weights && dynamic_cast<const ZeroCore*>(&optimizer) != nullptr) {
      throw std::invalid_argument(rank +
                                  "amp.initialize: ZeroRedundancyOptimizer cannot use master weights, because each "
                                  "rank owns a part of the model's own parameters: use O1, or master_weights = false");
    }
    const bool loses_type = properties.cast_model_type.value_or(at::kFloat) != at::kFloat && !properties.master_weights;
    if (loses_type && !optimizer.state().empty() && dynamic_cast<const optim::FusedOptimizer*>(&optimizer) == nullptr) {
      throw std::invalid_argument(rank +
                                  "amp.initialize: the optimizer has state for float32 parameters, which this level "
                                  "casts: initialize before the first step, or use O2");
    }
  }
}

std::vector<at::Tensor> trainable_leaves_of(const Optimizers& optimizers) {
  std::vector<at::Tensor> leaves;
  for (const Optimizer& optimizer : optimizers.all()) {
    for (const at::Tensor& parameter : master_params(optimizer)) {
      if (parameter.requires_grad() && parameter.is_leaf()) leaves.push_back(parameter);
    }
  }
  return leaves;
}

// Converts the optimizer's state to the current dtypes of its parameters.
void cast_state(Optimizer& optimizer) {
  auto* fused = dynamic_cast<optim::FusedOptimizer*>(&optimizer);
  if (fused == nullptr || optimizer.state().empty()) return;
  for (const at::Tensor& parameter : master_params(optimizer)) {
    fused->set_parameter_state(parameter, fused->parameter_state(parameter));
  }
}

}  // namespace

Amp initialize(const Models& models, const Optimizers& optimizers, const Options& options) {
  auto state = std::make_shared<detail::AmpState>();
  state->options = options;
  state->rank = detail::rank_prefix(options.group);
  state->properties = resolve(options, state->rank);
  const Properties& properties = state->properties;
  for (const AnyModuleRef& model : models.all()) state->models.insert(&model.get());
  if (!properties.enabled) return Amp(state);
  check_models(models, state->rank);
  check_optimizers(optimizers, properties, state->rank);

  state->device = device_of(models);
  if (properties.cast_model_type) {
    for (const AnyModuleRef& model : models.all()) {
      detail::cast_model(model.get(), *properties.cast_model_type, properties.keep_batchnorm_fp32);
    }
  }
  for (Optimizer& optimizer : optimizers.all()) {
    state->records.push_back(
        std::make_unique<detail::OptimizerRecord>(optimizer, properties.master_weights, state->rank));
    cast_state(optimizer);
  }
  state->mark =
      std::make_unique<WrappedParameters>(trainable_leaves_of(optimizers), nullptr, MarkKind::kMixedPrecision);
  for (int i = 0; i < options.num_losses; ++i) {
    state->scalers.emplace_back(properties.loss_scale, options.min_loss_scale, options.max_loss_scale, state->rank);
  }
  state->unreported.resize(state->scalers.size());
  return Amp(std::move(state));
}

}  // namespace ddp::amp

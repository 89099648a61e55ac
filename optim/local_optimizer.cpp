#include "ddprun/detail/optim/local_optimizer.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_sub.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/where.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <optional>
#include <sstream>
#include <stdexcept>

#include <ddprun/detail/comm/device_copy.h>

#include "base/rank_prefix.h"
#include "optim/gradient_checks.h"
#include "optim/serial_region.h"

namespace ddp::optim {
namespace {

// The kernels iterate over the memory of all tensors in the same order, so their layouts must be equal.
bool same_layout(const at::Tensor& tensor, const at::Tensor& reference) {
  return tensor.is_non_overlapping_and_dense() && tensor.strides() == reference.strides();
}

// Returns a copy of `tensor` in a dense layout like that of `reference`.
at::Tensor with_layout_of(const at::Tensor& reference, const at::Tensor& tensor) {
  return at::empty_like(reference, tensor.options()).copy_(tensor);
}

// LibTorch's elementwise loops use several threads from this number of elements on.
constexpr int64_t kMinParallelElements = 32768;

bool is_small(const at::Tensor& parameter) {
  return parameter.is_cpu() && parameter.numel() < kMinParallelElements;
}

FusedBatch& batch_for(std::vector<FusedBatch>& batches, const at::Tensor& parameter, bool first_step) {
  const auto fits = [&](const FusedBatch& batch) {
    return batch.dtype == parameter.scalar_type() && batch.device == parameter.device() &&
           batch.first_step == first_step && is_small(batch.parameters.front()) == is_small(parameter);
  };
  // The search starts at the end: nearly always the last batch fits, because models keep parameters of one device and
  // dtype together.
  const auto found = std::find_if(batches.rbegin(), batches.rend(), fits);
  if (found != batches.rend()) return *found;
  batches.push_back({.device = parameter.device(), .dtype = parameter.scalar_type(), .first_step = first_step});
  return batches.back();
}

bool is_set_on_host(const at::Tensor& flag) {
  return flag.is_cpu() && *flag.const_data_ptr<float>() != 0;
}

void count_steps(std::vector<at::Tensor>& steps) {
  if (steps.empty()) return;
  if (!steps.front().is_cpu()) {
    at::_foreach_add_(steps, 1);
    return;
  }
  // The counters are in host memory. For small parameters, an operator call per counter would cost more than the
  // kernel.
  for (auto& step : steps) *step.mutable_data_ptr<float>() += 1;
}

GradientScaling on_device(const GradientScaling& scaling, c10::Device device) {
  const auto there = [&](const at::Tensor& tensor) { return tensor.defined() ? to_device(tensor, device) : tensor; };
  return {.grad_scale = there(scaling.grad_scale), .found_inf = there(scaling.found_inf)};
}

}  // namespace

LocalOptimizer::LocalOptimizer(const std::vector<torch::optim::OptimizerParamGroup>& groups,
                               std::unique_ptr<torch::optim::OptimizerOptions> defaults, std::vector<StateField> fields,
                               Kernels kernels)
    : FusedOptimizer(groups, std::move(defaults)), fields_(std::move(fields)), kernels_(kernels) {}

void LocalOptimizer::apply_step(const GradientScaling& scaling) {
  check_step();  // throws before any tensor is changed or created
  // Python's GradScaler does not call step() in this case, so no state is created here either.
  const bool is_skipped = scaling.found_inf.defined() && is_set_on_host(scaling.found_inf);
  if (kernels_ == Kernels::kOwn && is_skipped) return;
  std::vector<std::vector<FusedBatch>> batches;
  batches.reserve(param_groups_.size());
  for (const auto& group : param_groups_) batches.push_back(collect(group));
  if (kernels_ == Kernels::kOwn) {
    for (auto& group : batches) {
      for (auto& batch : group) unscale(batch, on_device(scaling, batch.device));
    }
    const at::Tensor shared = prepare_step();
    for (auto& group : batches) {
      for (auto& batch : group) batch.shared = shared;
    }
  }
  for (size_t i = 0; i < batches.size(); ++i) {
    for (auto& batch : batches[i]) {
      run(param_groups_[i].options(), batch, on_device(scaling, batch.device));
    }
  }
}

at::Tensor LocalOptimizer::prepare_step() const {
  return {};
}

void LocalOptimizer::check_capturable(const torch::optim::OptimizerParamGroup&) const {}

void LocalOptimizer::check_step() {
  for (auto& group : param_groups_) {
    check_group(group);
    check_capturable(group);
  }
  check_gradients(param_groups_, type_name());
  for (const auto& group : param_groups_) {
    for (const auto& parameter : group.params()) {
      if (parameter.grad().defined()) check_state(parameter);
    }
  }
}

// Refuses a state that does not fit its parameter: converting or moving the model does not convert or move the
// optimizer's state.
void LocalOptimizer::check_state(const at::Tensor& parameter) const {
  const auto found = state_.find(parameter.unsafeGetTensorImpl());
  if (found == state_.end()) return;
  const auto* state = dynamic_cast<const LocalState*>(found->second.get());
  if (!state) {
    throw std::invalid_argument(rank_prefix() + type_name() +
                                ": a parameter's state is of another optimizer's class; use set_parameter_state()");
  }
  for (size_t i = 0; i < fields_.size(); ++i) {
    const auto& tensor = state->tensors[i];
    if (!tensor.defined()) continue;
    const bool fits = fields_[i].is_number() || (tensor.scalar_type() == parameter.scalar_type() &&
                                                 tensor.sizes() == fields_[i].shape_for(parameter));
    if (fits && tensor.device() == parameter.device()) continue;
    std::ostringstream text;
    text << rank_prefix() << type_name() << ": the state " << fields_[i].name << " is " << tensor.scalar_type()
         << " of shape " << tensor.sizes() << " on " << tensor.device() << ", but its parameter is now "
         << parameter.scalar_type() << " of shape " << parameter.sizes() << " on " << parameter.device()
         << ": convert the model before its first step, or give the state again with set_parameter_state()";
    throw std::invalid_argument(text.str());
  }
}

std::vector<FusedBatch> LocalOptimizer::collect(const torch::optim::OptimizerParamGroup& group) {
  std::vector<FusedBatch> batches;
  for (const auto& parameter : group.params()) {
    if (!parameter.grad().defined()) continue;
    auto& state = state_of(parameter);
    auto& batch = batch_for(batches, parameter, prepare_state(parameter, group.options(), state));
    if (kernels_ == Kernels::kOwn) {
      batch.first_dtype = batches.front().dtype;
      take(batch, parameter, state);
    } else {
      add_in_one_layout(batch, parameter, state);
    }
  }
  return batches;
}

void LocalOptimizer::take(FusedBatch& batch, const at::Tensor& parameter, LocalState& state) const {
  batch.parameters.push_back(parameter);
  batch.gradients.push_back(parameter.grad());
  for (size_t i = 0; i < fields_.size(); ++i) batch.state[i].push_back(state.tensors[i]);
}

void LocalOptimizer::add_in_one_layout(FusedBatch& batch, const at::Tensor& parameter, LocalState& state) const {
  const at::Tensor& gradient = parameter.grad();
  if (!parameter.is_non_overlapping_and_dense()) {
    batch.copies.emplace_back(parameter, with_layout_of(parameter, parameter));
    batch.parameters.push_back(batch.copies.back().second);
  } else {
    batch.parameters.push_back(parameter);
  }
  if (!same_layout(gradient, batch.parameters.back())) {
    batch.copies.emplace_back(gradient, with_layout_of(batch.parameters.back(), gradient));
    batch.gradients.push_back(batch.copies.back().second);
  } else {
    batch.gradients.push_back(gradient);
  }
  for (size_t i = 0; i < fields_.size(); ++i) {
    auto& tensor = state.tensors[i];
    if (!tensor.defined()) continue;
    // The layout of the parameter may have changed since the state was created, for example by
    // Module::to(MemoryFormat).
    if (!fields_[i].is_step && !same_layout(tensor, batch.parameters.back())) {
      tensor = with_layout_of(batch.parameters.back(), tensor);
    }
    batch.state[i].push_back(tensor);
  }
}

void LocalOptimizer::run(const torch::optim::OptimizerOptions& options, FusedBatch& batch,
                         const GradientScaling& scaling) const {
  if (scaling.found_inf.defined() && is_set_on_host(scaling.found_inf)) return;
  const bool counts = fields_.front().is_step;
  if (counts) count_steps(batch.state.front());
  if (kernels_ == Kernels::kOwn) {
    {
      // Calls the operators without autograd's part, which takes more time than a small update. Only the version
      // counters are still needed.
      const at::AutoDispatchBelowADInplaceOrView below_autograd;
      run_kernel(options, batch, {});
    }
    for (const auto& parameter : batch.parameters) parameter.unsafeGetTensorImpl()->bump_version();
    for (const auto& [tensor, old] : batch.before) tensor.copy_(at::where(scaling.found_inf.ne(0), old, tensor));
  } else {
    std::optional<SerialRegion> serial;
    if (is_small(batch.parameters.front())) serial.emplace();
    run_kernel(options, batch, scaling);
  }
  if (counts && scaling.found_inf.defined() && !scaling.found_inf.is_cpu()) {
    // On a device, only the kernel knows whether the step was skipped, so the counters are corrected there.
    at::_foreach_sub_(batch.state.front(), std::vector<at::Tensor>(batch.state.front().size(), scaling.found_inf));
  }
  for (auto& [original, copy] : batch.copies) original.copy_(copy);
}

// Unscales the gradients for kernels that cannot do it, as GradScaler does for such optimizers in Python. On a device,
// the host does not know whether the step must be skipped, so the step is taken and then undone if necessary.
void LocalOptimizer::unscale(FusedBatch& batch, const GradientScaling& scaling) const {
  if (scaling.found_inf.defined() && is_set_on_host(scaling.found_inf)) return;
  if (scaling.found_inf.defined() && !scaling.found_inf.is_cpu()) {
    const auto keep = [&](const std::vector<at::Tensor>& tensors) {
      for (const auto& tensor : tensors) {
        if (tensor.defined()) batch.before.emplace_back(tensor, tensor.clone());
      }
    };
    keep(batch.parameters);
    keep(batch.gradients);
    for (size_t i = 0; i < fields_.size(); ++i) {
      if (!fields_[i].is_step) keep(batch.state[i]);
    }
  }
  if (!scaling.grad_scale.defined()) return;
  const at::Tensor inverse = scaling.grad_scale.to(at::kDouble).reciprocal().to(at::kFloat);
  for (const auto& gradient : batch.gradients) gradient.mul_(inverse);
}

LocalState& LocalOptimizer::state_of(const at::Tensor& parameter) {
  auto& state = state_[parameter.unsafeGetTensorImpl()];
  if (!state) state = std::make_unique<LocalState>();
  return dynamic_cast<LocalState&>(*state);
}

const LocalState* LocalOptimizer::find_state(const at::Tensor& parameter) const {
  const auto found = state_.find(parameter.unsafeGetTensorImpl());
  return found == state_.end() ? nullptr : dynamic_cast<const LocalState*>(found->second.get());
}

StateTensors LocalOptimizer::parameter_state(const at::Tensor& parameter) const {
  StateTensors result;
  if (const auto* state = find_state(parameter)) {
    for (size_t i = 0; i < fields_.size(); ++i) {
      if (state->tensors[i].defined()) result.emplace(fields_[i].name, state->tensors[i]);
    }
  }
  return result;
}

void LocalOptimizer::check_parameter_state(const at::Tensor& parameter, const StateTensors& state) const {
  const auto fail = [&](const std::string& text) {
    throw std::invalid_argument(rank_prefix() + type_name() + ": " + text);
  };
  for (const auto& [name, tensor] : state) {
    const auto field =
        std::find_if(fields_.begin(), fields_.end(), [&](const auto& each) { return name == each.name; });
    if (field == fields_.end()) fail("it has no state named " + name);
    const bool number =
        tensor.defined() && !at::isComplexType(tensor.scalar_type()) && tensor.scalar_type() != at::kBool;
    const auto shape = field->shape_for(parameter);
    if (!number || (field->is_number() ? tensor.numel() != 1 : tensor.sizes() != shape)) {
      std::ostringstream text;
      text << "the state " << name << " must be " << (field->is_number() ? "one number" : "numbers of the shape ");
      if (!field->is_number()) text << at::IntArrayRef(shape);
      if (tensor.defined()) text << ", got " << tensor.scalar_type() << " of shape " << tensor.sizes();
      fail(text.str());
    }
  }
  if (state.empty()) return;
  for (const auto& field : fields_) {
    if (!field.optional && !state.contains(field.name)) fail(std::string("the state ") + field.name + " is missing");
  }
}

void LocalOptimizer::set_parameter_state(const at::Tensor& parameter, const StateTensors& state) {
  check_parameter_state(parameter, state);
  if (state.empty()) {
    state_.erase(parameter.unsafeGetTensorImpl());
    return;
  }
  auto local = std::make_unique<LocalState>();
  for (size_t i = 0; i < fields_.size(); ++i) {
    const auto found = state.find(fields_[i].name);
    if (found == state.end()) continue;
    const auto value = found->second.detach();
    local->tensors[i] = empty_state(parameter, fields_[i].name);
    local->tensors[i].copy_(fields_[i].is_number() ? value.reshape({}) : value);
  }
  state_[parameter.unsafeGetTensorImpl()] = std::move(local);
}

bool LocalOptimizer::has_state(const std::string& name) const {
  return std::any_of(fields_.begin(), fields_.end(), [&](const auto& each) { return name == each.name; });
}

at::Tensor LocalOptimizer::empty_state(const at::Tensor& parameter, const std::string& name) const {
  const auto field = std::find_if(fields_.begin(), fields_.end(), [&](const auto& each) { return name == each.name; });
  if (field == fields_.end()) {
    throw std::invalid_argument(rank_prefix() + type_name() + ": it has no state named " + name);
  }
  const auto options = parameter.options().requires_grad(false);
  if (field->is_number()) return at::empty({}, options.dtype(at::kFloat));
  if (field->shape) return at::empty(field->shape_for(parameter), options);
  return at::empty_like(parameter.detach());
}

}  // namespace ddp::optim

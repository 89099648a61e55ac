#include "ddprun/amp/amp.h"

#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <torch/serialize/archive.h>

#include <stdexcept>
#include <unordered_map>

#include "amp/amp_state.h"
#include "amp/scale_floor.h"

namespace ddp::amp {

namespace detail {

ForwardRules::ForwardRules(std::shared_ptr<const AmpState> state) : state_(std::move(state)) {
  if (!state_->properties.enabled) return;
  input_type_ = state_->properties.cast_model_type;
  output_type_ = state_->options.cast_model_outputs;
  if (input_type_ && !output_type_) output_type_ = at::kFloat;
}

void ForwardRules::begin() const {
  before_forward(*state_);
}

CastScope ForwardRules::scope() const {
  return CastScope(state_->properties.patch_torch_functions, state_->device, state_->options.dtype);
}

}  // namespace detail

namespace {

using torch::nn::Module;

std::string key_of(size_t index) {
  return "loss_scaler" + std::to_string(index);
}

at::Tensor float_form(const at::Tensor& tensor, const std::unordered_map<const void*, at::Tensor>& masters) {
  if (!tensor.defined()) return tensor;
  const auto master = masters.find(tensor.unsafeGetTensorImpl());
  if (master != masters.end()) return master->second;
  const bool half = tensor.scalar_type() == at::kHalf || tensor.scalar_type() == at::kBFloat16;
  return half ? tensor.detach().to(at::kFloat).set_requires_grad(tensor.requires_grad()) : tensor;
}

std::shared_ptr<Module> float_copy(const Module& source, const std::unordered_map<const void*, at::Tensor>& masters) {
  auto copy = std::make_shared<Module>(source.name());
  for (const auto& item : source.named_parameters(/*recurse=*/false)) {
    copy->register_parameter(item.key(), float_form(item.value(), masters), item.value().requires_grad());
  }
  for (const auto& item : source.named_buffers(/*recurse=*/false)) {
    copy->register_buffer(item.key(), float_form(item.value(), masters));
  }
  for (const auto& child : source.named_children()) {
    copy->register_module(child.key(), float_copy(*child.value(), masters));
  }
  return copy;
}

}  // namespace

Amp::Amp(std::shared_ptr<detail::AmpState> state) : state_(std::move(state)) {}

const Properties& Amp::properties() const {
  return state_->properties;
}

void Amp::require_initialized(const Module& net) const {
  if (state_->models.count(&net) > 0) return;
  throw std::invalid_argument(state_->rank + "amp: model() expects a model that was passed to amp.initialize");
}

CastScope Amp::autocast() const {
  return CastScope(state_->properties.patch_torch_functions, state_->device, state_->options.dtype);
}

ScaledLoss Amp::scale_loss(const at::Tensor& loss, const Optimizers& optimizers,
                           const ScaleLossOptions& options) const {
  state_->throw_failure();
  std::vector<detail::OptimizerRecord*> records;
  if (state_->properties.enabled) {
    if (options.loss_id < 0 || static_cast<size_t>(options.loss_id) >= state_->scalers.size()) {
      throw std::out_of_range(
          state_->rank + "amp: loss_id " + std::to_string(options.loss_id) +
          " is out of range: initialize() was called with num_losses=" + std::to_string(state_->scalers.size()));
    }
    for (torch::optim::Optimizer& optimizer : optimizers.all()) records.push_back(&state_->record_of(optimizer));
  }
  return ScaledLoss(state_, loss, std::move(records), options);
}

void Amp::step(torch::optim::Optimizer& optimizer) const {
  state_->throw_failure();
  if (!state_->properties.enabled) {
    optimizer.step();
    return;
  }
  state_->record_of(optimizer).step();
}

void Amp::zero_grad(torch::optim::Optimizer& optimizer) const {
  if (!state_->properties.enabled) return optimizer.zero_grad();
  state_->record_of(optimizer).zero_grad();
}

double Amp::loss_scale(int loss_id) const {
  return state_->properties.enabled ? state_->scalers.at(static_cast<size_t>(loss_id)).state().loss_scale : 1.0;
}

std::map<std::string, LossScalerState> Amp::state_dict() const {
  std::map<std::string, LossScalerState> state;
  for (size_t i = 0; i < state_->scalers.size(); ++i) state.emplace(key_of(i), state_->scalers[i].state());
  return state;
}

void Amp::load_state_dict(const std::map<std::string, LossScalerState>& state) const {
  if (!state_->properties.enabled) return;
  std::string unexpected;
  for (const auto& [key, value] : state) {
    const bool known = key.starts_with("loss_scaler") && key.find_first_not_of("0123456789", 11) == std::string::npos;
    if (!known) unexpected += (unexpected.empty() ? "\"" : ", \"") + key + "\"";
    const bool is_positive = value.loss_scale > 0 && value.loss_scale <= detail::kMaxScale;
    if (!is_positive || value.unskipped < 0) {
      throw std::runtime_error(state_->rank + "amp: the state's " + key + " is out of range");
    }
  }
  if (!unexpected.empty()) {
    throw std::runtime_error(state_->rank +
                             "Error(s) in loading state_dict. Unexpected key(s) in state_dict: " + unexpected + ". ");
  }
  if (state.size() != state_->scalers.size()) {
    TORCH_WARN(state_->rank, "state_dict contains ", state.size(), " entries, while ", state_->scalers.size(),
               " loss_scalers are used");
  }
  for (size_t i = 0; i < state_->scalers.size(); ++i) {
    if (const auto found = state.find(key_of(i)); found != state.end()) state_->scalers[i].load(found->second);
  }
}

void Amp::save(torch::serialize::OutputArchive& archive) const {
  std::vector<double> scales;
  std::vector<int64_t> unskipped;
  for (const auto& scaler : state_->scalers) {
    const LossScalerState state = scaler.state();
    scales.push_back(state.loss_scale);
    unskipped.push_back(state.unskipped);
  }
  archive.write("loss_scale", c10::IValue(scales));
  archive.write("unskipped", c10::IValue(unskipped));
}

void Amp::load(torch::serialize::InputArchive& archive) const {
  c10::IValue scales, unskipped;
  const bool whole = archive.try_read("loss_scale", scales) && archive.try_read("unskipped", unskipped) &&
                     scales.isDoubleList() && unskipped.isIntList() &&
                     scales.toDoubleVector().size() == unskipped.toIntVector().size();
  if (!whole) throw std::runtime_error(state_->rank + "amp: the archive holds no state of loss scalers");
  std::map<std::string, LossScalerState> state;
  for (size_t i = 0; i < scales.toDoubleVector().size(); ++i) {
    state.emplace(key_of(i),
                  LossScalerState{.loss_scale = scales.toDoubleVector()[i], .unskipped = unskipped.toIntVector()[i]});
  }
  load_state_dict(state);
}

std::shared_ptr<Module> Amp::fp32_state(AnyModuleRef net) const {
  const at::NoGradGuard no_grad;
  std::unordered_map<const void*, at::Tensor> masters;
  for (const auto& record : state_->records) {
    record->follow_model();
    for (size_t i = 0; i < record->masters().size(); ++i) {
      masters.emplace(record->parameters()[i].unsafeGetTensorImpl(), record->masters()[i]);
    }
  }
  return float_copy(net.get(), masters);
}

std::vector<at::Tensor> master_params(const torch::optim::Optimizer& optimizer) {
  std::vector<at::Tensor> parameters;
  for (const auto& group : optimizer.param_groups()) {
    parameters.insert(parameters.end(), group.params().begin(), group.params().end());
  }
  return parameters;
}

}  // namespace ddp::amp

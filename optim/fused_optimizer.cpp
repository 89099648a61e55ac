#include "ddprun/optim/fused_optimizer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_zero.h>
#include <ATen/ops/ne.h>
#include <ATen/ops/scalar_tensor.h>
#include <c10/core/GradMode.h>
#include <torch/serialize/archive.h>

#include <cmath>
#include <stdexcept>
#include <unordered_set>
#include <utility>
#include <vector>

#include <ddprun/base/progress.h>
#include <ddprun/comm/device_range.h>
#include <ddprun/detail/optim/rate_tensor.h>

#include "base/rank_prefix.h"

namespace ddp::optim {
namespace {

// LibTorch's archives identify a parameter by the address that it had when it was saved.
std::string archive_key(const at::Tensor& parameter) {
  return std::to_string(reinterpret_cast<size_t>(parameter.unsafeGetTensorImpl()));
}

c10::Device device_of_first(const std::vector<torch::optim::OptimizerParamGroup>& groups) {
  for (const auto& group : groups) {
    if (!group.params().empty()) return group.params().front().device();
  }
  return c10::kCPU;
}

at::Tensor checked_scalar(const at::Tensor& tensor, const char* name) {
  if (!tensor.defined()) return tensor;
  if (tensor.numel() != 1 || tensor.scalar_type() != at::kFloat) {
    throw std::invalid_argument(rank_prefix() + name + " must be a float32 tensor of one element");
  }
  return tensor.detach().reshape({});
}

void write_state(torch::serialize::OutputArchive& archive, const StateTensors& state) {
  for (const auto& [name, tensor] : state) {
    if (name == "step") {
      archive.write(name, c10::IValue(static_cast<int64_t>(tensor.item<double>())));  // LibTorch stores an integer
    } else {
      archive.write(name, c10::IValue(tensor));
    }
  }
}

StateTensors read_state(torch::serialize::InputArchive& archive) {
  StateTensors state;
  for (const auto& name : archive.keys()) {
    c10::IValue value;
    archive.read(name, value);
    if (value.isInt()) {
      state[name] = at::scalar_tensor(value.toInt(), at::kFloat);
    } else if (value.isTensor()) {
      state[name] = value.toTensor();
    } else {
      throw std::invalid_argument("the archive's state " + name + " is neither a tensor nor a number");
    }
  }
  return state;
}

void keep_options(torch::optim::OptimizerParamGroup& group, const torch::optim::OptimizerParamGroup& given) {
  if (given.has_options()) group.set_options(given.options().clone());
}

// Returns `group` with each parameter once: LibTorch's parameters() repeats a tied parameter, and Python's does not. As
// in Python, a parameter that is already in another group is refused.
torch::optim::OptimizerParamGroup without_repeats(const torch::optim::OptimizerParamGroup& group,
                                                  const std::vector<torch::optim::OptimizerParamGroup>& others) {
  std::unordered_set<const void*> of_others, seen;
  for (const auto& other : others) {
    for (const at::Tensor& parameter : other.params()) of_others.insert(parameter.unsafeGetTensorImpl());
  }
  std::vector<at::Tensor> once;
  for (const at::Tensor& parameter : group.params()) {
    if (of_others.contains(parameter.unsafeGetTensorImpl())) {
      throw std::invalid_argument(rank_prefix() + "some parameters appear in more than one parameter group");
    }
    if (seen.insert(parameter.unsafeGetTensorImpl()).second) once.push_back(parameter);
  }
  torch::optim::OptimizerParamGroup result(std::move(once));
  if (group.has_options()) result.set_options(group.options().clone());
  return result;
}

// The contents that load() has read for one group.
struct ReadGroup {
  std::vector<StateTensors> states;
  std::unique_ptr<torch::optim::OptimizerOptions> options;
};

ReadGroup read_group(torch::serialize::InputArchive& archive, torch::serialize::InputArchive& states,
                     const torch::optim::OptimizerParamGroup& group) {
  at::Tensor size;
  archive.read("params/size", size);
  if (size.item<int64_t>() != static_cast<int64_t>(group.params().size())) {
    throw std::invalid_argument(
        "loaded state dict contains a parameter group that doesn't match the size of optimizer's group");
  }
  ReadGroup result;
  for (size_t i = 0; i < group.params().size(); ++i) {
    c10::IValue key;
    archive.read("params/" + std::to_string(i), key);
    torch::serialize::InputArchive state;
    result.states.push_back(states.try_read(key.toStringRef(), state) ? read_state(state) : StateTensors{});
  }
  torch::serialize::InputArchive options;
  archive.read("options", options);
  result.options = group.options().clone();
  result.options->serialize(options);
  return result;
}

}  // namespace

FusedOptimizer::FusedOptimizer(const std::vector<torch::optim::OptimizerParamGroup>& groups,
                               std::unique_ptr<torch::optim::OptimizerOptions> defaults)
    : Optimizer(std::vector<torch::optim::OptimizerParamGroup>{}, std::move(defaults)) {
  for (const auto& group : groups) FusedOptimizer::add_param_group(group);
}

void FusedOptimizer::add_param_group(const torch::optim::OptimizerParamGroup& group) {
  Optimizer::add_param_group(without_repeats(group, param_groups_));
  keep_options(param_groups_.back(), group);
}

std::string FusedOptimizer::dependence(const torch::optim::OptimizerParamGroup&) const {
  return "";
}

torch::Tensor FusedOptimizer::step(LossClosure closure) {
  torch::Tensor loss;
  if (closure) {
    const at::AutoGradMode grad(true);
    loss = closure();
  }
  step_scaled({});
  return loss;
}

void FusedOptimizer::step_scaled(const GradientScaling& scaling) {
  const at::NoGradGuard no_grad;
  const progress::PhaseScope phase(progress::Phase::kOptimizer);
  const timeline::DeviceRange range("optimizer", device_of_first(param_groups_));
  GradientScaling checked{.grad_scale = checked_scalar(scaling.grad_scale, "grad_scale"),
                          .found_inf = checked_scalar(scaling.found_inf, "found_inf")};
  // The kernels compare found_inf with 1, and it is subtracted from the step counters. A sum of flags over devices or
  // ranks may exceed 1.
  if (checked.found_inf.defined()) checked.found_inf = at::ne(checked.found_inf, 0).to(at::kFloat);
  apply_step(checked);
}

void FusedOptimizer::zero_grad(bool set_to_none) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> dense;
  for (auto& group : param_groups_) {
    for (auto& parameter : group.params()) {
      at::Tensor& gradient = parameter.mutable_grad();
      if (!gradient.defined()) continue;
      if (set_to_none) {
        gradient.reset();
        continue;
      }
      // An alias instead of detach_(), because a view of a bucket cannot be detached in place.
      if (gradient.grad_fn() || gradient.requires_grad()) gradient = gradient.detach();
      if (gradient.is_sparse()) {
        gradient.zero_();
      } else {
        dense.push_back(gradient);
      }
    }
  }
  if (!dense.empty()) at::_foreach_zero_(dense);
}

void FusedOptimizer::save(torch::serialize::OutputArchive& archive) const {
  archive.write("pytorch_version", c10::IValue("1.5.0"));  // the version of the format, which LibTorch checks
  torch::serialize::OutputArchive states(archive.compilation_unit());
  torch::serialize::OutputArchive groups(archive.compilation_unit());
  groups.write("param_groups/size", at::scalar_tensor(static_cast<int64_t>(param_groups_.size()), at::kLong));
  for (size_t i = 0; i < param_groups_.size(); ++i) {
    torch::serialize::OutputArchive group(archive.compilation_unit());
    const auto& parameters = param_groups_[i].params();
    group.write("params/size", at::scalar_tensor(static_cast<int64_t>(parameters.size()), at::kLong));
    for (size_t j = 0; j < parameters.size(); ++j) {
      const auto key = archive_key(parameters[j]);
      group.write("params/" + std::to_string(j), c10::IValue(key));
      const auto tensors = parameter_state(parameters[j]);
      if (tensors.empty()) continue;
      torch::serialize::OutputArchive state(archive.compilation_unit());
      write_state(state, tensors);
      states.write(key, state);
    }
    torch::serialize::OutputArchive options(archive.compilation_unit());
    param_groups_[i].options().serialize(options);
    group.write("options", options);
    groups.write("param_groups/" + std::to_string(i), group);
  }
  archive.write("state", states);
  archive.write("param_groups", groups);
}

void FusedOptimizer::load(torch::serialize::InputArchive& archive) {
  std::vector<ReadGroup> read;
  try {
    torch::serialize::InputArchive states;
    archive.read("state", states);
    torch::serialize::InputArchive groups;
    archive.read("param_groups", groups);
    at::Tensor size;
    groups.read("param_groups/size", size);
    if (size.item<int64_t>() != static_cast<int64_t>(param_groups_.size())) {
      throw std::invalid_argument("loaded state dict has a different number of parameter groups");
    }
    for (size_t i = 0; i < param_groups_.size(); ++i) {
      torch::serialize::InputArchive group;
      groups.read("param_groups/" + std::to_string(i), group);
      read.push_back(read_group(group, states, param_groups_[i]));
      for (size_t j = 0; j < read[i].states.size(); ++j) {
        check_parameter_state(param_groups_[i].params()[j], read[i].states[j]);
      }
    }
  } catch (const std::exception& error) {
    const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
    throw std::invalid_argument(rank_prefix() + type_name() + ": this archive cannot be loaded: " +
                                (torch_error ? torch_error->what_without_backtrace() : error.what()));
  }
  for (size_t i = 0; i < read.size(); ++i) {
    for (size_t j = 0; j < read[i].states.size(); ++j) {
      set_parameter_state(param_groups_[i].params()[j], read[i].states[j]);
    }
    param_groups_[i].set_options(std::move(read[i].options));
    if (auto* rate = dynamic_cast<RateTensor*>(&param_groups_[i].options())) rate->number_to_tensor();
  }
}

}  // namespace ddp::optim

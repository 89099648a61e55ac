// The optimizer of a description, LibTorch's or this library's, and its state by Python's names.
#pragma once

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include <ddprun/comm/process_group.h>
#include <ddprun/optim/fused_optimizer.h>
#include <ddprun/optim/more_optimizers.h>
#include <ddprun/optim/optimizers.h>
#include <ddprun/optim/zero_redundancy_optimizer.h>

#include "tests/conformance/net.h"

namespace conformance {

using Optimizer = std::unique_ptr<torch::optim::Optimizer>;
using Groups = std::vector<torch::optim::OptimizerParamGroup>;

template <typename Options>
void set_common(Options& options, const Json& given) {
  if (given.contains("lr")) options.lr(given["lr"].get<double>());
  if (given.contains("weight_decay")) options.weight_decay(given["weight_decay"].get<double>());
}
template <typename Options>
void set_maximize(Options& options, const Json& given) {
  if constexpr (requires { options.maximize(true); }) options.maximize(given.value("maximize", false));
}

template <typename Options>
Options sgd_options(const Json& given) {
  Options options(1e-3);
  set_common(options, given);
  options.momentum(given.value("momentum", 0.0)).dampening(given.value("dampening", 0.0));
  options.nesterov(given.value("nesterov", false));
  set_maximize(options, given);
  return options;
}

template <typename Options>
Options adam_options(const Json& given) {
  Options options(1e-3);
  set_common(options, given);
  if (given.contains("betas")) options.betas({given["betas"][0].get<double>(), given["betas"][1].get<double>()});
  options.amsgrad(given.value("amsgrad", false));
  set_maximize(options, given);
  return options;
}

template <typename Options>
Options adagrad_options(const Json& given) {
  Options options(1e-2);
  set_common(options, given);
  options.lr_decay(given.value("lr_decay", 0.0));
  options.initial_accumulator_value(given.value("initial_accumulator_value", 0.0));
  set_maximize(options, given);
  return options;
}

inline torch::optim::RMSpropOptions rmsprop_options(const Json& given) {
  torch::optim::RMSpropOptions options(1e-2);
  set_common(options, given);
  options.alpha(given.value("alpha", 0.99))
      .momentum(given.value("momentum", 0.0))
      .centered(given.value("centered", false));
  return options;
}

// Options of ddprun's own optimizers, which list themselves.
template <typename Options>
Options listed_options(const Json& given) {
  Options options;
  for (const auto& [name, option] : options.list()) {
    if (!given.contains(name)) continue;
    const Json& value = given[name];
    if (auto* const* number = std::get_if<double*>(&option)) value.get_to(**number);
    if (auto* const* flag = std::get_if<bool*>(&option)) value.get_to(**flag);
    if (auto* const* pair = std::get_if<std::tuple<double, double>*>(&option)) value.get_to(**pair);
  }
  return options;
}

// The optimizer's own options: the class's, since LibTorch replaces what equals them in a group by what the optimizer
// has. But Adagrad takes the first value of its sums from there, as Python's.
template <typename Options>
Options defaults_of(const Json& settings, Options (*make)(const Json&)) {
  Json given = Json::object();
  const char* initial = "initial_accumulator_value";
  if (settings["options"].contains(initial)) given[initial] = settings["options"][initial];
  return make(given);
}

// The groups of `net`'s trained parameters, each with options of its own.
template <typename Options>
Groups groups_of(const torch::nn::Module& net, const Json& settings, Options (*make)(const Json&)) {
  std::vector<std::vector<torch::Tensor>> members(2);
  const bool has_second = !settings["second"].is_null();
  for (const auto& [name, parameter] : parameters_once(net)) {
    if (parameter.requires_grad()) members[has_second && parameter.dim() <= 1 ? 1 : 0].push_back(parameter);
  }
  Json second = settings["options"];
  if (has_second) second.update(settings["second"]);
  Groups groups;
  groups.emplace_back(members[0], std::make_unique<Options>(make(settings["options"])));
  if (!members[1].empty()) groups.emplace_back(members[1], std::make_unique<Options>(make(second)));
  return groups;
}

template <typename Class, typename Options>
Optimizer torch_optimizer(const torch::nn::Module& net, const Json& settings, Options (*make)(const Json&)) {
  return std::make_unique<Class>(groups_of(net, settings, make), defaults_of(settings, make));
}

template <typename Class, typename Options>
Optimizer fused_optimizer(const torch::nn::Module& net, const Json& settings, Options (*make)(const Json&),
                          const ddp::GroupHandle& group) {
  if (settings["zero"].get<bool>()) {
    return std::make_unique<ddp::ZeroRedundancyOptimizer<Class>>(groups_of(net, settings, make),
                                                                 defaults_of(settings, make), group);
  }
  return std::make_unique<Class>(groups_of(net, settings, make), defaults_of(settings, make));
}

template <typename Options>
Optimizer own_optimizer(const torch::nn::Module& net, const Json& settings, const ddp::GroupHandle& group) {
  return fused_optimizer<ddp::optim::OwnOptimizer<Options>>(net, settings, listed_options<Options>, group);
}

inline Optimizer make_optimizer(const torch::nn::Module& net, const Json& settings, const ddp::GroupHandle& group) {
  const std::string name = settings["library"].get<std::string>() + "::" + settings["name"].get<std::string>();
  if (name == "torch::SGD")
    return torch_optimizer<torch::optim::SGD>(net, settings, sgd_options<torch::optim::SGDOptions>);
  if (name == "torch::Adam")
    return torch_optimizer<torch::optim::Adam>(net, settings, adam_options<torch::optim::AdamOptions>);
  if (name == "torch::AdamW")
    return torch_optimizer<torch::optim::AdamW>(net, settings, adam_options<torch::optim::AdamWOptions>);
  if (name == "torch::RMSprop") return torch_optimizer<torch::optim::RMSprop>(net, settings, rmsprop_options);
  if (name == "torch::Adagrad")
    return torch_optimizer<torch::optim::Adagrad>(net, settings, adagrad_options<torch::optim::AdagradOptions>);
  if (name == "ddp::SGD")
    return fused_optimizer<ddp::optim::SGD>(net, settings, sgd_options<ddp::optim::SGDOptions>, group);
  if (name == "ddp::Adam")
    return fused_optimizer<ddp::optim::Adam>(net, settings, adam_options<ddp::optim::AdamOptions>, group);
  if (name == "ddp::AdamW")
    return fused_optimizer<ddp::optim::AdamW>(net, settings, adam_options<ddp::optim::AdamWOptions>, group);
  if (name == "ddp::Adagrad")
    return fused_optimizer<ddp::optim::Adagrad>(net, settings, adagrad_options<ddp::optim::AdagradOptions>, group);
  if (name == "own::RMSprop") return own_optimizer<ddp::optim::RMSpropOptions>(net, settings, group);
  if (name == "own::Adadelta") return own_optimizer<ddp::optim::AdadeltaOptions>(net, settings, group);
  if (name == "own::Adamax") return own_optimizer<ddp::optim::AdamaxOptions>(net, settings, group);
  if (name == "own::NAdam") return own_optimizer<ddp::optim::NAdamOptions>(net, settings, group);
  if (name == "own::RAdam") return own_optimizer<ddp::optim::RAdamOptions>(net, settings, group);
  if (name == "own::ASGD") return own_optimizer<ddp::optim::ASGDOptions>(net, settings, group);
  if (name == "own::Rprop") return own_optimizer<ddp::optim::RpropOptions>(net, settings, group);
  if (name == "own::Adafactor") return own_optimizer<ddp::optim::AdafactorOptions>(net, settings, group);
  throw std::invalid_argument("conformance_program.cpp knows no optimizer " + name);
}

// A parameter's state by Python's names, with "step" as a double; empty where it has none.
inline std::map<std::string, torch::Tensor> state_of(torch::optim::Optimizer& optimizer,
                                                     const torch::Tensor& parameter) {
  std::map<std::string, torch::Tensor> result;
  if (dynamic_cast<ddp::ZeroCore*>(&optimizer) != nullptr) return result;  // shared out
  if (const auto* fused = dynamic_cast<ddp::optim::FusedOptimizer*>(&optimizer)) {
    for (const auto& [name, value] : fused->parameter_state(parameter))
      result[name] = name == "step" ? value.to(torch::kDouble) : value;
    return result;
  }
  const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
  if (found == optimizer.state().end()) return result;
  const auto add = [&](const std::string& name, const torch::Tensor& value) {
    if (value.defined()) result[name] = value;
  };
  const auto add_step = [&](int64_t step) {
    result["step"] = torch::tensor(static_cast<double>(step), torch::kDouble);
  };
  torch::optim::OptimizerParamState* state = found->second.get();
  if (auto* sgd = dynamic_cast<torch::optim::SGDParamState*>(state)) {
    add("momentum_buffer", sgd->momentum_buffer());
  } else if (auto* adam = dynamic_cast<torch::optim::AdamParamState*>(state)) {
    add_step(adam->step());
    add("exp_avg", adam->exp_avg());
    add("exp_avg_sq", adam->exp_avg_sq());
    add("max_exp_avg_sq", adam->max_exp_avg_sq());
  } else if (auto* adamw = dynamic_cast<torch::optim::AdamWParamState*>(state)) {
    add_step(adamw->step());
    add("exp_avg", adamw->exp_avg());
    add("exp_avg_sq", adamw->exp_avg_sq());
    add("max_exp_avg_sq", adamw->max_exp_avg_sq());
  } else if (auto* rmsprop = dynamic_cast<torch::optim::RMSpropParamState*>(state)) {
    add_step(rmsprop->step());
    add("square_avg", rmsprop->square_avg());
    add("momentum_buffer", rmsprop->momentum_buffer());
    add("grad_avg", rmsprop->grad_avg());
  } else if (auto* adagrad = dynamic_cast<torch::optim::AdagradParamState*>(state)) {
    add_step(adagrad->step());
    add("sum", adagrad->sum());
  }
  return result;
}

}  // namespace conformance

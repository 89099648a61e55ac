// What the programs of random_steps_test.py and crossing_test.py share: parameters, gradients and optimizers that a
// case of JSON describes.
#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scalar_tensor.h>
#include <nlohmann/json.hpp>

#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <ddprun/optim/more_optimizers.h>

#include "tests/support/placement.h"

namespace ddp::test {

using ddp::optim::FusedOptimizer;
using nlohmann::json;
using torch::optim::OptimizerParamGroup;

inline at::ScalarType dtype_named(const std::string& name) {
  if (name == "float64") return at::kDouble;
  if (name == "bfloat16") return at::kBFloat16;
  if (name == "float16") return at::kHalf;
  return at::kFloat;
}

// Normal numbers of a seed; with "transposed", in memory the other way round.
inline at::Tensor drawn_numbers(const json& parameter, uint64_t seed, const std::string& layout, double scale) {
  auto shape = parameter["shape"].get<std::vector<int64_t>>();
  const bool is_transposed = layout == "transposed" && shape.size() > 1;
  if (is_transposed) std::swap(shape[0], shape[1]);
  auto generator = at::detail::createCPUGenerator(seed);
  at::Tensor result = (at::randn(shape, generator, at::kDouble) * scale).to(dtype_named(parameter["dtype"]));
  if (is_transposed) result = result.transpose(0, 1);
  return here(result);
}

inline void set_option(const ddp::optim::OptionValue& option, const json& value) {
  std::visit(
      [&](auto* target) {
        using Value = std::remove_pointer_t<decltype(target)>;
        if constexpr (std::is_same_v<Value, std::optional<std::string>>) {
          if (!value.is_null()) *target = value.get<std::string>();
        } else if constexpr (std::is_same_v<Value, std::tuple<std::optional<double>, double>>) {
          if (!value[0].is_null()) std::get<0>(*target) = value[0].get<double>();
          std::get<1>(*target) = value[1].get<double>();
        } else {
          value.get_to(*target);
        }
      },
      option);
}

template <typename Options>
Options drawn_options(const json& values) {
  Options options;
  for (const auto& [name, option] : options.list()) {
    if (values.contains(name)) set_option(option, values[name]);
  }
  if (values.contains("lr_tensor")) {
    options.lr_tensor(here(at::scalar_tensor(options.lr(), dtype_named(values["lr_tensor"]))));
    options.lr() = 7;  // which nothing reads
  }
  return options;
}

template <typename Options>
std::unique_ptr<FusedOptimizer> make_drawn(const json& test, const std::vector<at::Tensor>& parameters) {
  std::vector<OptimizerParamGroup> groups;
  for (const auto& group : test["groups"]) {
    std::vector<at::Tensor> members;
    for (const size_t index : group["members"]) members.push_back(parameters[index]);
    groups.emplace_back(std::move(members), std::make_unique<Options>(drawn_options<Options>(group["options"])));
  }
  return std::make_unique<ddp::optim::OwnOptimizer<Options>>(groups, Options());
}

inline std::unique_ptr<FusedOptimizer> make_drawn(const std::string& name, const json& test,
                                                  const std::vector<at::Tensor>& parameters) {
  using namespace ddp::optim;
  if (name == "RMSprop") return make_drawn<RMSpropOptions>(test, parameters);
  if (name == "Adadelta") return make_drawn<AdadeltaOptions>(test, parameters);
  if (name == "Adamax") return make_drawn<AdamaxOptions>(test, parameters);
  if (name == "NAdam") return make_drawn<NAdamOptions>(test, parameters);
  if (name == "RAdam") return make_drawn<RAdamOptions>(test, parameters);
  if (name == "ASGD") return make_drawn<ASGDOptions>(test, parameters);
  if (name == "Rprop") return make_drawn<RpropOptions>(test, parameters);
  if (name == "Adafactor") return make_drawn<AdafactorOptions>(test, parameters);
  if (name == "Muon") return make_drawn<MuonOptions>(test, parameters);
  if (name == "Lamb") return make_drawn<LambOptions>(test, parameters);
  if (name == "Lion") return make_drawn<LionOptions>(test, parameters);
  throw std::invalid_argument("no optimizer " + name);
}

inline std::vector<at::Tensor> drawn_parameters(const json& test) {
  const uint64_t seed = test["seed"];
  const auto& described = test["parameters"];
  std::vector<at::Tensor> parameters;
  for (size_t i = 0; i < described.size(); ++i) {
    parameters.push_back(drawn_numbers(described[i], seed + i, described[i]["layout"], 1).requires_grad_());
  }
  return parameters;
}

/// Takes step number `step` of the case.
inline void take_drawn_step(const json& test, size_t step, const std::vector<at::Tensor>& parameters,
                            FusedOptimizer& optimizer) {
  const uint64_t seed = test["seed"];
  const auto& described = test["parameters"];
  const auto& drawn = test["steps"][step];
  for (size_t i = 0; i < parameters.size(); ++i) {
    parameters[i].mutable_grad().reset();
    if (drawn["without"].contains(std::to_string(i))) continue;
    parameters[i].mutable_grad() =
        drawn_numbers(described[i], seed + 1000 * (step + 1) + i, described[i]["gradient_layout"], drawn["scale"]);
  }
  for (auto& group : optimizer.param_groups()) {
    group.options().set_lr(group.options().get_lr() * drawn["lr_factor"].get<double>());
  }
  optimizer.step();
  if (step != 0 || !test.contains("count")) return;
  for (const auto& parameter : parameters) {
    auto state = optimizer.parameter_state(parameter);
    if (state.contains("step")) state["step"].fill_(test["count"].get<double>());
  }
}

}  // namespace ddp::test

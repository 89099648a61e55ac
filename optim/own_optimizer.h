// The members of OwnOptimizer, for the sources that instantiate it: one per optimizer, which says in a Rule<Options>
// what is its own.
#pragma once

#include <ATen/ScalarOps.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <ddprun/optim/more_optimizers.h>

#include "optim/elementwise/elementwise.h"
#include "optim/groups.h"

namespace ddp::optim {

/// Numbers of one parameter's update that follow from its scalars, on the host or on the parameter's device.
template <typename Scalar>
using Coefficients = std::array<Scalar, 4>;
/// The same as update() takes them.
using Numbers = std::array<Number, 4>;

/// The scalars of a parameter's state by field; Scalar is double on the CPU, and at::Tensor on devices.
template <typename Scalar>
class Scalars {
 public:
  explicit Scalars(const std::array<at::Tensor, kMostStateFields>& fields) : fields_(fields) {}

  /// The field's value: a float32 number, which Python reads as a double.
  Scalar get(size_t field) const {
    if constexpr (std::is_same_v<Scalar, double>) {
      return *fields_[field].template const_data_ptr<float>();
    } else {
      return fields_[field].clone();
    }
  }
  void set(size_t field, const Scalar& value) const {
    if constexpr (std::is_same_v<Scalar, double>) {
      *fields_[field].template mutable_data_ptr<float>() = static_cast<float>(value);
    } else {
      fields_[field].copy_(value);
    }
  }
  /// Multiplies the field in float32, as Python multiplies the tensor.
  void multiply(size_t field, const Scalar& factor) const {
    if constexpr (std::is_same_v<Scalar, double>) {
      *fields_[field].template mutable_data_ptr<float>() *= static_cast<float>(factor);
    } else {
      fields_[field].mul_(factor);
    }
  }

 private:
  const std::array<at::Tensor, kMostStateFields>& fields_;
};

/// tensor *= factor, with Python's rounding: Tensor::mul_(Scalar) rounds the factor to the tensor's dtype on the CPU.
inline void multiply(const at::Tensor& tensor, double factor) {
  tensor.mul_(at::native::wrapped_scalar_tensor(factor));
}

/// `a` where `condition`, else `b`.
inline double choose(bool condition, double a, double b) {
  return condition ? a : b;
}
inline at::Tensor choose(const at::Tensor& condition, const at::Tensor& a, const at::Scalar& b) {
  return at::where(condition, a, b);
}

/// The specialisations stand in the optimizers' sources.
template <typename Options>
struct Rule;

/// A float32 scalar of the state, on the parameter's device.
inline at::Tensor scalar_state(const at::Tensor& parameter, double value) {
  return at::full({}, value, at::TensorOptions().dtype(at::kFloat).device(parameter.device()));
}

/// The larger and the smaller of two numbers.
inline double at_least(double value, double lowest) {
  return std::max(lowest, value);
}
inline at::Tensor at_least(const at::Tensor& value, double lowest) {
  return value.clamp_min(lowest);
}
inline double at_most(double value, double highest) {
  return std::min(highest, value);
}
inline at::Tensor at_most(const at::Tensor& value, double highest) {
  return value.clamp_max(highest);
}

/// parameter -= factor * change
inline void subtract_scaled(const at::Tensor& parameter, const at::Tensor& change, double factor) {
  parameter.add_(change, -factor);
}
inline void subtract_scaled(const at::Tensor& parameter, const at::Tensor& change, const at::Tensor& factor) {
  parameter.sub_(change * factor);
}

/// What an elementwise optimizer says about itself; a Rule<Options> derives from it and has at least fields() and
/// update().
template <typename Options>
struct ElementwiseRule {
  /// Whether the step is an update of elements, and not a function run() of all tensors.
  static constexpr bool kIsElementwise = true;
  /// Whether an optional field exists with these options.
  static bool has(const Options&, const at::Tensor&, size_t) { return true; }
  /// What a field begins with.
  static at::Tensor first_value(const Options&, const at::Tensor& parameter, size_t field) {
    return Rule<Options>::fields()[field].is_number() ? scalar_state(parameter, 0) : at::zeros_like(parameter);
  }
  /// Once for each parameter and step, which the scalar `step` counts already: the numbers that update() needs. May
  /// change the scalars. The tensor is what prepare_step() returned.
  template <typename Scalar>
  static Coefficients<Scalar> coefficients(const Options&, const Scalars<Scalar>&, const at::Tensor&) {
    return {};
  }
};

/// The gradient that the update uses: negated for `maximize`, with `weight_decay` times the parameter added. Leaves the
/// gradient.
Operand decayed_gradient(Elementwise& elementwise, double weight_decay, bool maximize);

/// The same for options with decoupled_weight_decay, which subtract the decay from the parameter.
template <typename Options>
Operand decayed_gradient(Elementwise& elementwise, const Options& options) {
  const bool is_decoupled = options.decoupled_weight_decay();
  if (options.weight_decay() != 0 && is_decoupled) {
    elementwise.mul(kParameter, kParameter, 1 - options.lr() * options.weight_decay());
  }
  return decayed_gradient(elementwise, is_decoupled ? 0 : options.weight_decay(), options.maximize());
}

/// Throws std::invalid_argument for an option that the dtype of one of `parameters` cannot hold, before anything is
/// changed; Python's operators throw then in the middle of a step.
void check_range(ListedOptions& options, const std::vector<at::Tensor>& parameters);

/// Updates the parameters of `batch`: by blocks on the CPU, by operators elsewhere. The functions are those of the
/// rule.
struct ElementwiseStep {
  const std::vector<StateField>& fields;
  /// Tensors for the operand after the state's, which update() sets; null: none.
  const std::vector<at::Tensor>* results = nullptr;
  std::function<Coefficients<double>(const Scalars<double>&)> on_host;
  std::function<Coefficients<at::Tensor>(const Scalars<at::Tensor>&)> on_device;
  std::function<void(Elementwise&, const Numbers&)> update;

  void run(FusedBatch& batch) const;

 private:
  void run_on_host(FusedBatch& batch) const;
  void run_on_device(FusedBatch& batch) const;
};

template <typename Options>
OwnOptimizer<Options>::OwnOptimizer(const std::vector<torch::optim::OptimizerParamGroup>& groups, Options defaults)
    : LocalOptimizer(groups, checked(defaults), Rule<Options>::fields(), Kernels::kOwn) {
  for (auto& group : param_groups_) check_group(group);
}

template <typename Options>
OwnOptimizer<Options>::OwnOptimizer(std::vector<at::Tensor> parameters, Options defaults)
    : OwnOptimizer(one_group(std::move(parameters)), std::move(defaults)) {}

template <typename Options>
std::string OwnOptimizer<Options>::type_name() const {
  return Options().optimizer_name();
}

template <typename Options>
std::string OwnOptimizer<Options>::dependence(const torch::optim::OptimizerParamGroup& group) const {
  if constexpr (requires { Rule<Options>::dependence(std::declval<const Options&>(), group); }) {
    return Rule<Options>::dependence(static_cast<const Options&>(group.options()), group);
  }
  return "";
}

template <typename Options>
void OwnOptimizer<Options>::check_group(torch::optim::OptimizerParamGroup& group) const {
  use_options<Options>(group, type_name());
  check_range(static_cast<Options&>(group.options()), group.params());
  if constexpr (requires { Rule<Options>::check_parameter; }) {
    for (const auto& parameter : group.params()) Rule<Options>::check_parameter(parameter);
  }
}

template <typename Options>
bool OwnOptimizer<Options>::prepare_state(const at::Tensor& parameter, const torch::optim::OptimizerOptions& options,
                                          LocalState& state) const {
  const auto& own = static_cast<const Options&>(options);
  static const std::vector<StateField> fields = Rule<Options>::fields();
  for (size_t i = 0; i < fields.size(); ++i) {
    if (state.tensors[i].defined() || !Rule<Options>::has(own, parameter, i)) continue;
    state.tensors[i] = Rule<Options>::first_value(own, parameter.detach(), i);
  }
  return false;
}

template <typename Options>
at::Tensor OwnOptimizer<Options>::prepare_step(const std::vector<std::vector<FusedBatch>>& batches) const {
  if constexpr (requires { Rule<Options>::prepare_step(std::declval<const Options&>(), batches); }) {
    return Rule<Options>::prepare_step(static_cast<const Options&>(param_groups_.front().options()), batches);
  }
  return {};
}

template <typename Options>
void OwnOptimizer<Options>::run_kernel(const torch::optim::OptimizerOptions& options, FusedBatch& batch,
                                       const GradientScaling&) const {
  using Own = Rule<Options>;
  const auto& own = static_cast<const Options&>(options);
  if constexpr (Own::kIsElementwise) {
    static const std::vector<StateField> fields = Own::fields();
    std::vector<at::Tensor> results;
    if constexpr (requires { Own::finish(own, batch, results); }) {
      for (const at::Tensor& parameter : batch.parameters) results.push_back(at::empty_like(parameter));
    }
    ElementwiseStep{
        .fields = fields,
        .results = results.empty() ? nullptr : &results,
        .on_host = [&](const Scalars<double>& scalars) { return Own::coefficients(own, scalars, batch.shared); },
        .on_device = [&](const Scalars<at::Tensor>& scalars) { return Own::coefficients(own, scalars, batch.shared); },
        .update = [&](Elementwise& elementwise, const Numbers& numbers) { Own::update(own, elementwise, numbers); }}
        .run(batch);
    if constexpr (requires { Own::finish(own, batch, results); }) Own::finish(own, batch, results);
  } else {
    Own::run(own, batch);
  }
}

}  // namespace ddp::optim

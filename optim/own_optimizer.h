// The members of OwnOptimizer, for the sources that instantiate it: one per optimizer, which says in a Rule<Options>
// what is its own.
#pragma once

#include <ATen/ScalarOps.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <ddprun/optim/more_optimizers.h>

#include "optim/elementwise/elementwise.h"
#include "optim/groups.h"

namespace ddp::optim {

/// Numbers of one parameter's update that follow from its scalars; of all parameters of a batch on devices.
template <typename Scalar>
using Coefficients = std::array<Scalar, 3>;

/// What update() gets.
struct Numbers {
  std::array<Number, 3> coefficients;
  Number rate;  ///< the learning rate
  Number kept;  ///< what decoupled weight decay leaves of a parameter: 1 - rate * weight_decay

  const Number& operator[](size_t i) const { return coefficients[i]; }
};

/// What coefficients follow from: the scalars of a parameter's state by field, and the learning rate. Scalar is double
/// for a parameter on the CPU; Number where the rate is a tensor, and for all parameters of a batch on a device.
template <typename Scalar>
class Scalars {
 public:
  /// Of the parameter `index`; nullopt: of all.
  Scalars(const FusedBatch& batch, std::optional<size_t> index, Scalar rate)
      : batch_(batch), index_(index), rate_(std::move(rate)) {}

  bool is_on_host() const { return index_.has_value(); }
  const Scalar& rate() const { return rate_; }
  /// What prepare_step() returned, one number.
  Scalar shared() const {
    if constexpr (std::is_same_v<Scalar, Number>) {
      if (!is_on_host()) return Number(to_device(batch_.shared, batch_.device));
    }
    return batch_.shared.template item<double>();
  }
  /// The field's value: a float32 number, which Python reads as a double. Tensors are those of the state.
  Scalar get(size_t field) const {
    if constexpr (std::is_same_v<Scalar, Number>) {
      if (!is_on_host()) return Number(batch_.state[field]);
    }
    return static_cast<double>(on_host(field));
  }
  void set(size_t field, const Scalar& value) const {
    if constexpr (std::is_same_v<Scalar, Number>) {
      if (!is_on_host()) return replace(field, value);
      on_host(field) = static_cast<float>(value.on_host());
    } else {
      on_host(field) = static_cast<float>(value);
    }
  }
  /// Multiplies the field in float32, as Python multiplies the tensor.
  void multiply(size_t field, const Scalar& factor) const {
    if constexpr (std::is_same_v<Scalar, Number>) {
      if (!is_on_host()) return replace(field, get(field) * factor);
      on_host(field) *= static_cast<float>(factor.on_host());
    } else {
      on_host(field) *= static_cast<float>(factor);
    }
  }

 private:
  float& on_host(size_t field) const { return *batch_.state[field][*index_].template mutable_data_ptr<float>(); }
  void replace(size_t field, const Number& values) const;

  const FusedBatch& batch_;
  std::optional<size_t> index_;
  Scalar rate_;
};

template <>
void Scalars<Number>::replace(size_t field, const Number& values) const;

/// tensor *= factor, with Python's rounding: Tensor::mul_(Scalar) rounds the factor to the tensor's dtype on the CPU.
inline void multiply(const at::Tensor& tensor, const Number& factor) {
  tensor.mul_(factor.is_tensor() ? factor.shared : at::native::wrapped_scalar_tensor(factor.value));
}

/// The specialisations stand in the optimizers' sources.
template <typename Options>
struct Rule;

/// A float32 scalar of the state, on the parameter's device.
inline at::Tensor scalar_state(const at::Tensor& parameter, double value) {
  return at::full({}, value, at::TensorOptions().dtype(at::kFloat).device(parameter.device()));
}

/// Fills `tensor` with the learning rate, which may be a tensor, and returns it.
template <typename Options>
at::Tensor filled_with_rate(const at::Tensor& tensor, const Options& options) {
  return options.lr_tensor().defined() ? tensor.copy_(options.lr_tensor()) : tensor.fill_(options.lr());
}

/// parameter -= factor * change
inline void subtract_scaled(const at::Tensor& parameter, const at::Tensor& change, const Number& factor) {
  if (!factor.is_tensor()) {
    parameter.add_(change, -factor.value);
  } else if (factor.shared.is_cpu()) {
    parameter.add_(change, -factor.on_host());
  } else {
    parameter.sub_(change * factor.shared);
  }
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
    const StateField kind = Rule<Options>::fields()[field];
    if (kind.shape) return parameter.new_zeros(kind.shape_for(parameter));
    return kind.is_number() ? scalar_state(parameter, 0) : at::zeros_like(parameter);
  }
  /// Once for each parameter and step, which the scalar `step` counts already: the numbers that update() needs. May
  /// change the scalars.
  template <typename Scalar>
  static Coefficients<Scalar> coefficients(const Options&, const Scalars<Scalar>&) {
    return {0, 0, 0};
  }
};

/// The gradient that the update uses: negated for `maximize`, with `weight_decay` times the parameter added. Leaves the
/// gradient.
Operand decayed_gradient(Elementwise& elementwise, double weight_decay, bool maximize);

/// The same for options with decoupled_weight_decay, which subtract the decay from the parameter.
template <typename Options>
requires requires(const Options& options) {
  options.decoupled_weight_decay();
}
Operand decayed_gradient(Elementwise& elementwise, const Options& options, const Number& kept) {
  const bool is_decoupled = options.decoupled_weight_decay();
  if (options.weight_decay() != 0 && is_decoupled) elementwise.mul(kParameter, kParameter, kept);
  return decayed_gradient(elementwise, is_decoupled ? 0 : options.weight_decay(), options.maximize());
}

/// The learning rate of `options`: a tensor is brought to `device`.
Number rate_of(const RateTensor& options, double number, const c10::Device& device);

/// Throws std::invalid_argument for an option that the dtype of one of `parameters` cannot hold, before anything is
/// changed; Python's operators throw then in the middle of a step.
void check_range(ListedOptions& options, const std::vector<at::Tensor>& parameters);

/// Throws std::invalid_argument, as Python does, if a parameter of `group` with a gradient is on the CPU.
void refuse_on_host(const torch::optim::OptimizerParamGroup& group, const std::string& type);

/// Runs `update` on operands of one shape: by blocks where that is possible, else by operators. `numbers` that it uses
/// must not be tensors on the CPU.
void update_operands(const std::vector<at::Tensor>& operands, const std::function<void(Elementwise&)>& update);

/// Updates the parameters of `batch`: by blocks on the CPU, by operators elsewhere. The functions are those of the
/// rule.
struct ElementwiseStep {
  const std::vector<StateField>& fields;
  /// Tensors for the operand after the state's, which update() sets; null: none.
  const std::vector<at::Tensor>* results = nullptr;
  /// Of one parameter on the CPU, without tensors; nullopt: of all, on a device.
  std::function<Numbers(std::optional<size_t>)> numbers;
  std::function<void(Elementwise&, const Numbers&)> update;

  void run(FusedBatch& batch) const;

 private:
  void run_on_host(FusedBatch& batch) const;
  void run_on_device(FusedBatch& batch) const;
};

/// The numbers of one parameter, or of all; see ElementwiseStep.
template <typename Options>
Numbers numbers_of(const Options& options, const FusedBatch& batch, const Number& rate, const Number& kept,
                   std::optional<size_t> index) {
  using Own = Rule<Options>;
  if (!rate.is_tensor() && index) {
    const auto [a, b, c] = Own::coefficients(options, Scalars<double>(batch, index, rate.value));
    return {.coefficients = {a, b, c}, .rate = rate, .kept = kept};
  }
  auto coefficients = Own::coefficients(options, Scalars<Number>(batch, index, rate));
  if (!index) return {.coefficients = std::move(coefficients), .rate = rate, .kept = kept};
  const auto& [a, b, c] = coefficients;
  return {.coefficients = {a.on_host(), b.on_host(), c.on_host()}, .rate = rate.on_host(), .kept = kept.on_host()};
}

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
    state.tensors[i] = Rule<Options>::first_value(own, parameter, i);
  }
  return false;
}

template <typename Options>
void OwnOptimizer<Options>::check_capturable(const torch::optim::OptimizerParamGroup& group) const {
  if constexpr (requires(const Options& options) { options.capturable(); }) {
    if (static_cast<const Options&>(group.options()).capturable()) refuse_on_host(group, type_name());
  }
}

template <typename Options>
at::Tensor OwnOptimizer<Options>::prepare_step() const {
  if constexpr (requires { Rule<Options>::prepare_step(param_groups_); }) {
    return Rule<Options>::prepare_step(param_groups_);
  }
  return {};
}

template <typename Options>
void OwnOptimizer<Options>::run_kernel(const torch::optim::OptimizerOptions& options, FusedBatch& batch,
                                       const GradientScaling&) const {
  using Own = Rule<Options>;
  const auto& own = static_cast<const Options&>(options);
  const Number rate = rate_of(own, own.lr(), batch.device);
  if constexpr (Own::kIsElementwise) {
    static const std::vector<StateField> fields = Own::fields();
    std::vector<at::Tensor> results;
    if constexpr (requires { Own::finish(own, batch, results, rate); }) {
      for (const at::Tensor& parameter : batch.parameters) results.push_back(at::empty_like(parameter));
    }
    Number kept = 1;
    if constexpr (requires { own.weight_decay(); }) kept = 1 - rate * own.weight_decay();
    ElementwiseStep{
        .fields = fields,
        .results = results.empty() ? nullptr : &results,
        .numbers = [&](std::optional<size_t> index) { return numbers_of(own, batch, rate, kept, index); },
        .update = [&](Elementwise& elementwise, const Numbers& numbers) { Own::update(own, elementwise, numbers); }}
        .run(batch);
    if constexpr (requires { Own::finish(own, batch, results, rate); }) Own::finish(own, batch, results, rate);
  } else {
    Own::run(own, batch, rate);
  }
}

}  // namespace ddp::optim

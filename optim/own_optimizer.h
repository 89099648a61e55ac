// The members of OwnOptimizer. Each optimizer's source includes this header, defines what is specific to that optimizer
// in a Rule<Options>, and instantiates the template.
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

/// The numbers that an update needs and that follow from the scalars: of one parameter on the host, or of all
/// parameters of a batch on a device.
template <typename Scalar>
using Coefficients = std::array<Scalar, 3>;

/// The numbers that are passed to update().
struct Numbers {
  std::array<UpdateScalar, 3> coefficients;
  UpdateScalar rate;  ///< the learning rate
  UpdateScalar kept;  ///< the factor that decoupled weight decay applies to a parameter: 1 - rate * weight_decay

  const UpdateScalar& operator[](size_t i) const { return coefficients[i]; }
};

/// The values from which coefficients are computed: the scalar fields of a parameter's state, and the learning rate.
/// Scalar is double for a parameter on the CPU. It is UpdateScalar if the rate is a tensor, and for all parameters of a
/// batch on a device.
template <typename Scalar>
class Scalars {
 public:
  /// `index` selects one parameter; nullopt selects all.
  Scalars(const FusedBatch& batch, std::optional<size_t> index, Scalar rate)
      : batch_(batch), index_(index), rate_(std::move(rate)) {}

  bool is_on_host() const { return index_.has_value(); }
  const Scalar& rate() const { return rate_; }
  /// The number that prepare_step() returned.
  Scalar shared() const {
    if constexpr (std::is_same_v<Scalar, UpdateScalar>) {
      if (!is_on_host()) return UpdateScalar(to_device(batch_.shared, batch_.device));
    }
    return batch_.shared.template item<double>();
  }
  /// The field's value, which is a float32 number that Python reads as a double. On a device, the tensors of the state.
  Scalar get(size_t field) const {
    if constexpr (std::is_same_v<Scalar, UpdateScalar>) {
      if (!is_on_host()) return UpdateScalar(batch_.state[field]);
    }
    return static_cast<double>(on_host(field));
  }
  void set(size_t field, const Scalar& value) const {
    if constexpr (std::is_same_v<Scalar, UpdateScalar>) {
      if (!is_on_host()) return replace(field, value);
      on_host(field) = static_cast<float>(value.on_host());
    } else {
      on_host(field) = static_cast<float>(value);
    }
  }
  /// Multiplies the field in float32, as Python does with the tensor.
  void multiply(size_t field, const Scalar& factor) const {
    if constexpr (std::is_same_v<Scalar, UpdateScalar>) {
      if (!is_on_host()) return replace(field, get(field) * factor);
      on_host(field) *= static_cast<float>(factor.on_host());
    } else {
      on_host(field) *= static_cast<float>(factor);
    }
  }

 private:
  float& on_host(size_t field) const { return *batch_.state[field][*index_].template mutable_data_ptr<float>(); }
  void replace(size_t field, const UpdateScalar& values) const;

  const FusedBatch& batch_;
  std::optional<size_t> index_;
  Scalar rate_;
};

template <>
void Scalars<UpdateScalar>::replace(size_t field, const UpdateScalar& values) const;

/// Computes tensor *= factor with Python's rounding: on the CPU, Tensor::mul_(Scalar) would round the factor to the
/// tensor's dtype.
inline void multiply(const at::Tensor& tensor, const UpdateScalar& factor) {
  tensor.mul_(factor.is_tensor() ? factor.shared : at::native::wrapped_scalar_tensor(factor.value));
}

/// Specialised in the source file of each optimizer.
template <typename Options>
struct Rule;

/// Returns a float32 scalar for the state, on the parameter's device.
inline at::Tensor scalar_state(const at::Tensor& parameter, double value) {
  return at::full({}, value, at::TensorOptions().dtype(at::kFloat).device(parameter.device()));
}

/// Fills `tensor` with the learning rate, which may be a tensor, and returns it.
template <typename Options>
at::Tensor filled_with_rate(const at::Tensor& tensor, const Options& options) {
  return options.lr_tensor().defined() ? tensor.copy_(options.lr_tensor()) : tensor.fill_(options.lr());
}

/// parameter -= factor * change
inline void subtract_scaled(const at::Tensor& parameter, const at::Tensor& change, const UpdateScalar& factor) {
  if (!factor.is_tensor()) {
    parameter.add_(change, -factor.value);
  } else if (factor.shared.is_cpu()) {
    parameter.add_(change, -factor.on_host());
  } else {
    parameter.sub_(change * factor.shared);
  }
}

/// Defaults for the rules of elementwise optimizers. A Rule<Options> derives from this class and must define at least
/// fields() and update().
template <typename Options>
struct ElementwiseRule {
  /// Whether the step is an elementwise update(). Otherwise the rule has a function run() that processes whole tensors.
  static constexpr bool kIsElementwise = true;
  /// Whether an optional field exists with these options.
  static bool has(const Options&, const at::Tensor&, size_t) { return true; }
  /// Returns the initial value of a field.
  static at::Tensor first_value(const Options&, const at::Tensor& parameter, size_t field) {
    const StateField kind = Rule<Options>::fields()[field];
    if (kind.shape) return parameter.new_zeros(kind.shape_for(parameter));
    return kind.is_number() ? scalar_state(parameter, 0) : at::zeros_like(parameter);
  }
  /// Returns the numbers that update() needs. It is called once per parameter and step, after the scalar `step` was
  /// increased, and may change the scalars.
  template <typename Scalar>
  static Coefficients<Scalar> coefficients(const Options&, const Scalars<Scalar>&) {
    return {0, 0, 0};
  }
};

/// Returns the gradient that the update uses: negated for `maximize`, and with `weight_decay` times the parameter
/// added. The gradient itself is not changed.
Operand decayed_gradient(Elementwise& elementwise, double weight_decay, bool maximize);

/// The same for options with decoupled_weight_decay, for which the decay is subtracted from the parameter instead.
template <typename Options>
requires requires(const Options& options) {
  options.decoupled_weight_decay();
}
Operand decayed_gradient(Elementwise& elementwise, const Options& options, const UpdateScalar& kept) {
  const bool is_decoupled = options.decoupled_weight_decay();
  if (options.weight_decay() != 0 && is_decoupled) elementwise.mul(kParameter, kParameter, kept);
  return decayed_gradient(elementwise, is_decoupled ? 0 : options.weight_decay(), options.maximize());
}

/// Returns the learning rate of `options`; a tensor is copied to `device`.
UpdateScalar rate_of(const RateTensor& options, double number, const c10::Device& device);

/// Throws std::invalid_argument, before anything is changed, for an option whose value the dtype of one of `parameters`
/// cannot hold. Python's operators throw in the middle of a step in this case.
void check_range(ListedOptions& options, const std::vector<at::Tensor>& parameters);

/// Throws std::invalid_argument, as Python does, if a parameter of `group` with a gradient is on the CPU.
void refuse_on_host(const torch::optim::OptimizerParamGroup& group, const std::string& type);

/// Runs `update` on operands of one shape: by blocks if possible, otherwise by ATen's operators. The numbers that it
/// uses must not be tensors on the CPU.
void update_operands(const std::vector<at::Tensor>& operands, const std::function<void(Elementwise&)>& update);

/// Updates the parameters of `batch`: by blocks on the CPU, by ATen's operators on devices. The functions are those of
/// the Rule.
struct ElementwiseStep {
  const std::vector<StateField>& fields;
  /// Tensors for an additional operand after the state's operands, which update() writes; null if the rule has no such
  /// operand.
  const std::vector<at::Tensor>* results = nullptr;
  /// Returns the numbers for one parameter on the CPU (plain numbers) or, for nullopt, for all parameters on a device.
  std::function<Numbers(std::optional<size_t>)> numbers;
  std::function<void(Elementwise&, const Numbers&)> update;

  void run(FusedBatch& batch) const;

 private:
  void run_on_host(FusedBatch& batch) const;
  void run_on_device(FusedBatch& batch) const;
};

/// Computes the numbers of one parameter, or of all; see ElementwiseStep.
template <typename Options>
Numbers numbers_of(const Options& options, const FusedBatch& batch, const UpdateScalar& rate, const UpdateScalar& kept,
                   std::optional<size_t> index) {
  using Own = Rule<Options>;
  if (!rate.is_tensor() && index) {
    const auto [a, b, c] = Own::coefficients(options, Scalars<double>(batch, index, rate.value));
    return {.coefficients = {a, b, c}, .rate = rate, .kept = kept};
  }
  auto coefficients = Own::coefficients(options, Scalars<UpdateScalar>(batch, index, rate));
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
  const UpdateScalar rate = rate_of(own, own.lr(), batch.device);
  if constexpr (Own::kIsElementwise) {
    static const std::vector<StateField> fields = Own::fields();
    std::vector<at::Tensor> results;
    if constexpr (requires { Own::finish(own, batch, results, rate); }) {
      for (const at::Tensor& parameter : batch.parameters) results.push_back(at::empty_like(parameter));
    }
    UpdateScalar kept = 1;
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

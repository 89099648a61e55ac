#include <ATen/Dispatch.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/linalg_vector_norm_cpu_dispatch.h>
#include <ATen/ops/matmul.h>

#include <limits>

#include <ddprun/detail/comm/shard_group.h>

#include "optim/own_optimizer.h"

namespace ddp::optim {

void AdafactorOptions::check(bool may_ascend) const {
  const auto& [eps1, eps2] = eps_;
  require_value(may_ascend || lr_ >= 0, "Learning rate should be >= 0 but is", lr_);
  require_value(beta2_decay_ <= 0, "beta2_decay should be <= 0 but is", beta2_decay_);
  if (eps1) require_value(*eps1 >= 0, "epsilon1 should be >= 0 but is", *eps1);
  require_value(eps2 >= 0, "epsilon2 should be >= 0 but is", eps2);
  require_value(d_ >= 1, "Clipping threshold d should be >= 1 but is", d_);
  require_value(weight_decay_ >= 0, "weight_decay should be >= 0 but is", weight_decay_);
}

template <>
struct Rule<AdafactorOptions> : ElementwiseRule<AdafactorOptions> {
  enum Field : size_t { kStep, kRowVar, kColVar, kVariance };
  static constexpr bool kIsElementwise = false;

  template <int kDimension>
  static std::vector<int64_t> reduced(at::IntArrayRef sizes) {
    std::vector<int64_t> shape = sizes.vec();
    if (shape.size() > 1) *(shape.end() - kDimension) = 1;
    return shape;
  }

  static void check_parameter(const at::Tensor& parameter) {
    refuse_shards({parameter}, "Adafactor", "Use an optimizer that works element by element, such as AdamW.");
  }

  static std::vector<StateField> fields() {
    return {{.name = "step", .is_step = true},
            {.name = "row_var", .optional = true, .shape = reduced<1>},
            {.name = "col_var", .optional = true, .shape = reduced<2>},
            {.name = "variance", .optional = true}};
  }

  static bool has(const AdafactorOptions&, const at::Tensor& parameter, size_t field) {
    return field == kStep || (field == kVariance) != (parameter.dim() > 1);
  }

  static std::string dependence(const AdafactorOptions& options, const torch::optim::OptimizerParamGroup& group) {
    const auto& all = group.params();
    const bool is_mixed = std::any_of(all.begin(), all.end(), [&](const at::Tensor& parameter) {
      return parameter.scalar_type() != all.front().scalar_type();
    });
    if (std::get<0>(options.eps()) || !is_mixed) return "";
    return "the default of eps[0] depends on the dtype, but a group has parameters of several dtypes: set eps[0]";
  }

  // The root of the mean square, divided by `divisor`: a number on the CPU.
  static Number root_mean_square(const at::Tensor& tensor, double divisor) {
    const at::Tensor norm =
        tensor.is_cpu() ? at::cpu::linalg_vector_norm(tensor, 2) : at::linalg_vector_norm(tensor, 2);
    const double root = std::pow(static_cast<double>(tensor.numel()), 0.5) * divisor;
    if (tensor.is_cpu()) return norm.item<double>() / root;
    return Number(norm.to(at::kFloat)) / root;
  }

  // Moves `mean` towards the mean of the squares along `dimension`.
  static void average(const at::Tensor& mean, const at::Tensor& gradient, int64_t dimension, const Number& weight) {
    const at::Tensor squares =
        at::linalg_vector_norm(gradient, 2, dimension, /*keepdim=*/true).square_().div_(gradient.size(dimension));
    weight.is_tensor() ? mean.lerp_(squares, weight.shared) : mean.lerp_(squares, weight.value);
  }

  static void update(const AdafactorOptions& options, FusedBatch& batch, size_t i, const Number& rate, double eps1) {
    const at::Tensor &parameter = batch.parameters[i], &count = batch.state[kStep][i],
                     &row_var = batch.state[kRowVar][i], &col_var = batch.state[kColVar][i],
                     &variance = batch.state[kVariance][i];
    const at::Tensor gradient = options.maximize() ? -batch.gradients[i] : batch.gradients[i];
    const Number step = count.is_cpu() ? Number(*count.const_data_ptr<float>()) : Number(count);
    const Number weight = pow(step, options.beta2_decay());
    const Number relative = at_most(rate, 1 / pow(step, 0.5));
    const Number alpha = at_least(root_mean_square(parameter, 1), std::get<1>(options.eps())) * relative;
    if (options.weight_decay() != 0) multiply(parameter, 1 - rate * options.weight_decay());
    at::Tensor change;
    if (variance.defined()) {
      change = at::empty_like(variance);
    } else {
      average(row_var, gradient, -1, weight);
      average(col_var, gradient, -2, weight);
      change = at::matmul(row_var, col_var).div_(row_var.mean(-2, /*keepdim=*/true).clamp_min_(eps1));
    }
    update_operands({change, gradient, variance}, [&](Elementwise& elementwise) {
      if (variance.defined()) {
        const Operand squares = elementwise.temporary();
        elementwise.mul(squares, kGradient, kGradient);
        elementwise.lerp(state_operand(0), state_operand(0), squares, weight);
        elementwise.copy(kParameter, state_operand(0));
      }
      elementwise.clamp(kParameter, kParameter, eps1 * eps1, std::numeric_limits<double>::infinity());
      elementwise.rsqrt(kParameter, kParameter);
      elementwise.mul(kParameter, kParameter, kGradient);
    });
    subtract_scaled(parameter, change, alpha / at_least(root_mean_square(change, options.d()), 1));
  }

  static double epsilon_of(at::ScalarType dtype) {
    return AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, dtype, "Adafactor", [] {
      return static_cast<double>(std::numeric_limits<scalar_t>::epsilon());
    });
  }

  static void run(const AdafactorOptions& options, FusedBatch& batch, const Number& rate) {
    // As in Python, where a group's first parameter sets it for the others.
    const double eps1 = std::get<0>(options.eps()).value_or(epsilon_of(batch.first_dtype));
    for (size_t i = 0; i < batch.parameters.size(); ++i) {
      if (batch.parameters[i].numel() != 0) update(options, batch, i, rate, eps1);
    }
  }
};

template class OwnOptimizer<AdafactorOptions>;

}  // namespace ddp::optim

#include <ATen/Dispatch.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/mul.h>

#include <limits>

#include <ddprun/detail/comm/shard_group.h>

#include "optim/column_norms.h"
#include "optim/own_optimizer.h"
#include "optim/stacks.h"

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

  // Returns each parameter's root mean square divided by `divisor`; for parameters on the CPU, as plain numbers.
  static std::vector<UpdateScalar> root_mean_squares(const Stack& stack, const at::Tensor& tensor, double divisor) {
    const auto size = static_cast<double>(tensor.numel() / static_cast<int64_t>(stack.members.size()));
    const double root = std::pow(size, 0.5) * divisor;
    const at::Tensor norms = stack.norms(tensor);
    if (!tensor.is_cpu()) return {UpdateScalar(norms[0].to(at::kFloat)) / root};
    std::vector<UpdateScalar> results;
    const at::Tensor values = norms.to(at::kDouble);
    for (int64_t i = 0; i < values.numel(); ++i) results.emplace_back(values.const_data_ptr<double>()[i] / root);
    return results;
  }

  // Moves the state's field towards the mean of the squares and returns it. `norms` are the square roots of sums of
  // `count` squares each.
  static at::Tensor average(const Stack& stack, size_t field, const at::Tensor& norms, int64_t count,
                            const UpdateScalar& weight) {
    const at::Tensor squares = norms.square_().div_(count), means = stack.of(stack.batch.state[field]);
    weight.is_tensor() ? means.lerp_(squares, weight.shared) : means.lerp_(squares, weight.value);
    stack.store(means, field);
    return means;
  }

  static void update(const AdafactorOptions& options, const Stack& stack, const UpdateScalar& rate, double eps1) {
    const at::Tensor &count = stack.batch.state[kStep][stack.members.front()],
                     variance = stack.of(stack.batch.state[kVariance]);
    at::Tensor gradient = stack.of(stack.batch.gradients), change;
    if (options.maximize()) gradient = -gradient;
    const UpdateScalar step = count.is_cpu() ? UpdateScalar(*count.const_data_ptr<float>()) : UpdateScalar(count);
    const UpdateScalar weight = pow(step, options.beta2_decay());
    const UpdateScalar relative = at_most(rate, 1 / pow(step, 0.5));
    const std::vector<UpdateScalar> sizes = root_mean_squares(stack, stack.of(stack.batch.parameters), 1);
    if (variance.defined()) {
      change = at::empty_like(variance);
    } else {
      const at::Tensor row_norms = at::linalg_vector_norm(gradient, 2, -1, /*keepdim=*/true);
      const at::Tensor rows = average(stack, kRowVar, row_norms, gradient.size(-1), weight);
      const at::Tensor columns = average(stack, kColVar, column_norms(gradient), gradient.size(-2), weight);
      change = at::mul(rows, columns).div_(rows.mean(-2, /*keepdim=*/true).clamp_min_(eps1));
    }
    update_operands({change, gradient, variance}, [&](Elementwise& elementwise) {
      const Operand estimate = variance.defined() ? state_operand(0) : kParameter;
      if (variance.defined()) {
        const Operand squares = elementwise.temporary();
        elementwise.mul(squares, kGradient, kGradient);
        elementwise.lerp(estimate, estimate, squares, weight);
      }
      elementwise.clamp(kParameter, estimate, eps1 * eps1, std::numeric_limits<double>::infinity());
      elementwise.rsqrt(kParameter, kParameter);
      elementwise.mul(kParameter, kParameter, kGradient);
    });
    if (variance.defined()) stack.store(variance, kVariance);
    const std::vector<UpdateScalar> changes = root_mean_squares(stack, change, options.d());
    for (size_t i = 0; i < stack.members.size(); ++i) {
      const at::Tensor& parameter = stack.batch.parameters[stack.members[i]];
      if (options.weight_decay() != 0) multiply(parameter, 1 - rate * options.weight_decay());
      const UpdateScalar alpha = at_least(sizes[i], std::get<1>(options.eps())) * relative;
      subtract_scaled(parameter, change[static_cast<int64_t>(i)], alpha / at_least(changes[i], 1));
    }
  }

  static double epsilon_of(at::ScalarType dtype) {
    return AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, dtype, "Adafactor", [] {
      return static_cast<double>(std::numeric_limits<scalar_t>::epsilon());
    });
  }

  static void run(const AdafactorOptions& options, FusedBatch& batch, const UpdateScalar& rate) {
    // As in Python, the dtype of a group's first parameter determines the default for the whole group.
    const double eps1 = std::get<0>(options.eps()).value_or(epsilon_of(batch.first_dtype));
    for_each_stack(batch, kStep, [&](const Stack& stack) { update(options, stack, rate, eps1); });
  }
};

template class OwnOptimizer<AdafactorOptions>;

}  // namespace ddp::optim

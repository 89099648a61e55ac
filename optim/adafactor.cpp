#include <ATen/Dispatch.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/matmul.h>

#include <algorithm>
#include <limits>

#include "optim/own_optimizer.h"

namespace ddp::optim {

std::vector<std::pair<const char*, OptionValue>> AdafactorOptions::list() {
  return {{"lr", &lr_}, {"beta2_decay", &beta2_decay_},   {"eps", &eps_},
          {"d", &d_},   {"weight_decay", &weight_decay_}, {"maximize", &maximize_}};
}

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

  static std::vector<StateField> fields() {
    return {{.name = "step", .is_step = true},
            {.name = "row_var", .optional = true, .shape = reduced<1>},
            {.name = "col_var", .optional = true, .shape = reduced<2>},
            {.name = "variance", .optional = true}};
  }

  static bool has(const AdafactorOptions&, const at::Tensor& parameter, size_t field) {
    return field == kStep || (field == kVariance) != (parameter.dim() > 1);
  }

  static at::Tensor first_value(const AdafactorOptions& options, const at::Tensor& parameter, size_t field) {
    const auto shape = fields()[field].shape;
    return shape ? parameter.new_zeros(shape(parameter.sizes()))
                 : ElementwiseRule::first_value(options, parameter, field);
  }

  static std::string dependence(const AdafactorOptions& options, const torch::optim::OptimizerParamGroup& group) {
    const auto& all = group.params();
    const bool is_mixed = std::any_of(all.begin(), all.end(), [&](const at::Tensor& parameter) {
      return parameter.scalar_type() != all.front().scalar_type();
    });
    if (std::get<0>(options.eps()) || !is_mixed) return "";
    return "a group has parameters of several dtypes, and their first one sets eps[0], which is not given: set it";
  }

  // The root of the mean square, divided by `divisor`.
  template <typename Scalar>
  static Scalar root_mean_square(const at::Tensor& tensor, double divisor) {
    const at::Tensor norm = at::linalg_vector_norm(tensor, 2);
    const double root = std::pow(static_cast<double>(tensor.numel()), 0.5) * divisor;
    if constexpr (std::is_same_v<Scalar, double>) {
      return norm.item<double>() / root;
    } else {
      return norm.to(at::kFloat) / root;
    }
  }

  static at::Tensor mean_of_squares(const at::Tensor& gradient, int64_t dimension) {
    return at::linalg_vector_norm(gradient, 2, dimension, /*keepdim=*/true).square_().div_(gradient.size(dimension));
  }

  template <typename Scalar>
  static void update(const AdafactorOptions& options, FusedBatch& batch, size_t i, const Scalar& step, double eps1) {
    using std::pow;
    const at::Tensor& parameter = batch.parameters[i];
    const at::Tensor gradient = options.maximize() ? -batch.gradients[i] : batch.gradients[i];
    const Scalar weight = pow(step, options.beta2_decay());
    const Scalar rate = at_most(1 / pow(step, 0.5), options.lr());
    const Scalar alpha = at_least(root_mean_square<Scalar>(parameter, 1), std::get<1>(options.eps())) * rate;
    if (options.weight_decay() != 0) multiply(parameter, 1 - options.lr() * options.weight_decay());
    at::Tensor estimate;
    if (gradient.dim() > 1) {
      const at::Tensor& row_var = batch.state[kRowVar][i].lerp_(mean_of_squares(gradient, -1), weight);
      const at::Tensor& col_var = batch.state[kColVar][i].lerp_(mean_of_squares(gradient, -2), weight);
      estimate = at::matmul(row_var, col_var).div_(row_var.mean(-2, /*keepdim=*/true).clamp_min_(eps1));
    } else {
      estimate = batch.state[kVariance][i].lerp_(gradient * gradient, weight).clone();
    }
    const at::Tensor change = estimate.clamp_min_(eps1 * eps1).rsqrt_().mul_(gradient);
    subtract_scaled(parameter, change, alpha / at_least(root_mean_square<Scalar>(change, options.d()), 1));
  }

  static double epsilon_of(at::ScalarType dtype) {
    return AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, dtype, "Adafactor", [] {
      return static_cast<double>(std::numeric_limits<scalar_t>::epsilon());
    });
  }

  static void run(const AdafactorOptions& options, FusedBatch& batch) {
    // As in Python, where a group's first parameter sets it for the others.
    const double eps1 = std::get<0>(options.eps()).value_or(epsilon_of(batch.first_dtype));
    for (size_t i = 0; i < batch.parameters.size(); ++i) {
      const at::Tensor& step = batch.state[kStep][i];
      if (batch.parameters[i].numel() == 0) continue;
      if (batch.device.is_cpu()) {
        update<double>(options, batch, i, *step.const_data_ptr<float>(), eps1);
      } else {
        update<at::Tensor>(options, batch, i, step, eps1);
      }
    }
  }
};

template class OwnOptimizer<AdafactorOptions>;

}  // namespace ddp::optim

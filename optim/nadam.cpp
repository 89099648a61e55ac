#include "optim/own_optimizer.h"

namespace ddp::optim {

std::vector<std::pair<const char*, OptionValue>> NAdamOptions::list() {
  return {{"lr", &lr_},
          {"betas", &betas_},
          {"eps", &eps_},
          {"weight_decay", &weight_decay_},
          {"momentum_decay", &momentum_decay_},
          {"decoupled_weight_decay", &decoupled_weight_decay_},
          {"maximize", &maximize_}};
}

void NAdamOptions::check(bool may_ascend) const {
  require_value(may_ascend || lr_ >= 0, "Invalid learning rate", lr_);
  require_value(eps_ >= 0, "Invalid epsilon value", eps_);
  require_betas(betas_);
  require_value(weight_decay_ >= 0, "Invalid weight_decay value", weight_decay_);
  require_value(momentum_decay_ >= 0, "Invalid momentum_decay value", momentum_decay_);
}

template <>
struct Rule<NAdamOptions> : ElementwiseRule<NAdamOptions> {
  enum Field : size_t { kStep, kMuProduct, kExpAvg, kExpAvgSq };

  static std::vector<StateField> fields() {
    return {{.name = "step", .is_step = true},
            {.name = "mu_product", .is_scalar = true},
            {.name = "exp_avg"},
            {.name = "exp_avg_sq"}};
  }

  static at::Tensor first_value(const NAdamOptions& options, const at::Tensor& parameter, size_t field) {
    if (field == kMuProduct) return scalar_state(parameter, 1);
    return ElementwiseRule::first_value(options, parameter, field);
  }

  template <typename Scalar>
  static Coefficients<Scalar> coefficients(const NAdamOptions& options, const Scalars<Scalar>& scalars,
                                           const at::Tensor&) {
    using std::pow;
    const auto [beta1, beta2] = options.betas();
    const Scalar step = scalars.get(kStep);
    const Scalar mu = beta1 * (1.0 - 0.5 * pow(0.96, step * options.momentum_decay()));
    const Scalar mu_next = beta1 * (1.0 - 0.5 * pow(0.96, (step + 1) * options.momentum_decay()));
    scalars.multiply(kMuProduct, mu);
    const Scalar mu_product = scalars.get(kMuProduct);
    return {1 - pow(beta2, step), -options.lr() * (1.0 - mu) / (1.0 - mu_product),
            (-options.lr() * mu_next) / (1.0 - mu_product * mu_next)};
  }

  static void update(const NAdamOptions& options, Elementwise& elementwise, const Numbers& numbers) {
    const auto [beta1, beta2] = options.betas();
    const Operand exp_avg = state_operand(kExpAvg);
    const Operand exp_avg_sq = state_operand(kExpAvgSq);
    const Operand gradient = decayed_gradient(elementwise, options);
    elementwise.lerp(exp_avg, exp_avg, gradient, 1 - beta1);
    elementwise.mul(exp_avg_sq, exp_avg_sq, beta2);
    elementwise.addcmul(exp_avg_sq, exp_avg_sq, gradient, gradient, 1 - beta2);
    const Operand divisor = elementwise.temporary();
    elementwise.div(divisor, exp_avg_sq, numbers[0]);
    elementwise.sqrt(divisor, divisor);
    elementwise.add(divisor, divisor, options.eps());
    elementwise.addcdiv(kParameter, kParameter, gradient, divisor, numbers[1]);
    elementwise.addcdiv(kParameter, kParameter, exp_avg, divisor, numbers[2]);
  }
};

template class OwnOptimizer<NAdamOptions>;

}  // namespace ddp::optim

#include "optim/own_optimizer.h"

namespace ddp::optim {

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
  static Coefficients<Scalar> coefficients(const NAdamOptions& options, const Scalars<Scalar>& scalars) {
    using std::pow;
    const auto [beta1, beta2] = options.betas();
    const Scalar step = scalars.get(kStep);
    const Scalar exponent = step * options.momentum_decay();
    const Scalar next_exponent =
        scalars.is_on_host() ? (step + 1) * options.momentum_decay() : exponent + options.momentum_decay();
    const Scalar mu = beta1 * (1 - 0.5 * pow(0.96, exponent));
    const Scalar mu_next = beta1 * (1 - 0.5 * pow(0.96, next_exponent));
    scalars.multiply(kMuProduct, mu);
    const Scalar mu_product = scalars.get(kMuProduct);
    const Scalar correction = 1 - pow(beta2, step);
    return {scalars.is_on_host() ? correction : root(correction), -scalars.rate() * (1 - mu) / (1 - mu_product),
            -scalars.rate() * mu_next / (1 - mu_product * mu_next)};
  }

  static void update(const NAdamOptions& options, Elementwise& elementwise, const Numbers& numbers) {
    const auto [beta1, beta2] = options.betas();
    const Operand exp_avg = state_operand(kExpAvg);
    const Operand exp_avg_sq = state_operand(kExpAvgSq);
    const Operand gradient = decayed_gradient(elementwise, options, numbers.kept);
    elementwise.lerp(exp_avg, exp_avg, gradient, 1 - beta1);
    elementwise.mul(exp_avg_sq, exp_avg_sq, beta2);
    elementwise.addcmul(exp_avg_sq, exp_avg_sq, gradient, gradient, 1 - beta2);
    const Operand divisor = elementwise.temporary();
    if (numbers[0].is_list()) {
      elementwise.sqrt(divisor, exp_avg_sq);
      elementwise.div(divisor, divisor, numbers[0]);
      elementwise.add(divisor, divisor, options.eps());
      const Operand numerator = elementwise.temporary();
      elementwise.mul(numerator, numbers[1], gradient);
      elementwise.add(numerator, numerator, exp_avg, numbers[2]);
      return elementwise.addcdiv(kParameter, kParameter, numerator, divisor, 1);
    }
    elementwise.div(divisor, exp_avg_sq, numbers[0]);
    elementwise.sqrt(divisor, divisor);
    elementwise.add(divisor, divisor, options.eps());
    elementwise.addcdiv(kParameter, kParameter, gradient, divisor, numbers[1]);
    elementwise.addcdiv(kParameter, kParameter, exp_avg, divisor, numbers[2]);
  }
};

template class OwnOptimizer<NAdamOptions>;

}  // namespace ddp::optim

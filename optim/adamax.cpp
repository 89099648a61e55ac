#include "optim/own_optimizer.h"

namespace ddp::optim {

template <>
struct Rule<AdamaxOptions> : ElementwiseRule<AdamaxOptions> {
  enum Field : size_t { kStep, kExpAvg, kExpInf };

  static std::vector<StateField> fields() {
    return {{.name = "step", .is_step = true}, {.name = "exp_avg"}, {.name = "exp_inf"}};
  }

  // On the host: the step size. On devices: the factor by which the divisor is multiplied.
  template <typename Scalar>
  static Coefficients<Scalar> coefficients(const AdamaxOptions& options, const Scalars<Scalar>& scalars) {
    using std::pow;
    const Scalar power = pow(std::get<0>(options.betas()), scalars.get(kStep));
    if (!scalars.is_on_host()) return {(power - 1) / scalars.rate(), 0, 0};
    return {-(scalars.rate() / (1 - power)), 0, 0};
  }

  static void update(const AdamaxOptions& options, Elementwise& elementwise, const Numbers& numbers) {
    const auto [beta1, beta2] = options.betas();
    const Operand exp_avg = state_operand(kExpAvg);
    const Operand exp_inf = state_operand(kExpInf);
    const Operand gradient = decayed_gradient(elementwise, options.weight_decay(), options.maximize());
    elementwise.lerp(exp_avg, exp_avg, gradient, 1 - beta1);
    const Operand absolute = elementwise.temporary();
    elementwise.abs(absolute, gradient);
    elementwise.add(absolute, absolute, options.eps());
    elementwise.mul(exp_inf, exp_inf, beta2);
    elementwise.maximum(exp_inf, exp_inf, absolute);
    if (!numbers[0].is_list()) return elementwise.addcdiv(kParameter, kParameter, exp_avg, exp_inf, numbers[0]);
    elementwise.mul(absolute, exp_inf, numbers[0]);
    elementwise.addcdiv(kParameter, kParameter, exp_avg, absolute, 1);
  }
};

template class OwnOptimizer<AdamaxOptions>;

}  // namespace ddp::optim

#include "optim/own_optimizer.h"

namespace ddp::optim {

template <>
struct Rule<RAdamOptions> : ElementwiseRule<RAdamOptions> {
  enum Field : size_t { kStep, kExpAvg, kExpAvgSq };

  static std::vector<StateField> fields() {
    return {{.name = "step", .is_step = true}, {.name = "exp_avg"}, {.name = "exp_avg_sq"}};
  }

  // On the host, the last coefficient is the rectification, or 0. On devices there are two coefficients, and one of
  // them is 0: the first divides the root in the rectified step, and the second is the factor of the plain step.
  template <typename Scalar>
  static Coefficients<Scalar> coefficients(const RAdamOptions& options, const Scalars<Scalar>& scalars) {
    using std::pow;
    const auto [beta1, beta2] = options.betas();
    const Scalar step = scalars.get(kStep);
    const Scalar correction1 = 1 - pow(beta1, step);
    const Scalar correction2 = 1 - pow(beta2, step);
    const double rho_inf = 2 / (1 - beta2) - 1;
    const Scalar rho = rho_inf - 2 * step * pow(beta2, step) / correction2;
    const Scalar rectification =
        where_above(rho, 5, root((rho - 4) * (rho - 2) * rho_inf / ((rho_inf - 4) * (rho_inf - 2) * rho)), 0);
    if (scalars.is_on_host()) return {correction1, root(correction2), rectification};
    const Scalar plain = where_above(rectification, 0, 0, 1);
    return {-(root(correction2) * scalars.rate() * rectification) / correction1,
            -(plain * scalars.rate() / correction1), 0};
  }

  static void update(const RAdamOptions& options, Elementwise& elementwise, const Numbers& numbers) {
    const auto [beta1, beta2] = options.betas();
    const Operand exp_avg = state_operand(kExpAvg);
    const Operand exp_avg_sq = state_operand(kExpAvgSq);
    const Operand gradient = decayed_gradient(elementwise, options, numbers.kept);
    elementwise.lerp(exp_avg, exp_avg, gradient, 1 - beta1);
    elementwise.mul(exp_avg_sq, exp_avg_sq, beta2);
    elementwise.addcmul(exp_avg_sq, exp_avg_sq, gradient, gradient, 1 - beta2);
    const Operand change = elementwise.temporary();
    elementwise.sqrt(change, exp_avg_sq);
    elementwise.add(change, change, options.eps());
    if (numbers[0].is_list()) {
      elementwise.div(change, change, numbers[0]);
      elementwise.reciprocal(change, change);
      elementwise.add(change, change, numbers[1]);
      return elementwise.addcmul(kParameter, kParameter, exp_avg, change, 1);
    }
    const auto& [correction1, correction2_root, rectification] = numbers.coefficients;
    const Operand plain = elementwise.temporary();
    elementwise.div(plain, exp_avg, correction1);
    elementwise.mul(plain, plain, numbers.rate);
    if (rectification.is(0)) return elementwise.add(kParameter, kParameter, plain, -1);
    elementwise.reciprocal(change, change);
    elementwise.mul(change, change, correction2_root);
    elementwise.mul(change, plain, change);
    elementwise.mul(change, change, rectification);
    elementwise.add(kParameter, kParameter, change, -1);
  }
};

template class OwnOptimizer<RAdamOptions>;

}  // namespace ddp::optim

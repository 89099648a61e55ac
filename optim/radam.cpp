#include "optim/own_optimizer.h"

namespace ddp::optim {

std::vector<std::pair<const char*, OptionValue>> RAdamOptions::list() {
  return {{"lr", &lr_},
          {"betas", &betas_},
          {"eps", &eps_},
          {"weight_decay", &weight_decay_},
          {"decoupled_weight_decay", &decoupled_weight_decay_},
          {"maximize", &maximize_}};
}

void RAdamOptions::check(bool may_ascend) const {
  require_value(may_ascend || lr_ >= 0, "Invalid learning rate", lr_);
  require_value(eps_ >= 0, "Invalid epsilon value", eps_);
  require_betas(betas_);
  require_value(weight_decay_ >= 0, "Invalid weight_decay value", weight_decay_);
}

template <>
struct Rule<RAdamOptions> : ElementwiseRule<RAdamOptions> {
  enum Field : size_t { kStep, kExpAvg, kExpAvgSq };

  static std::vector<StateField> fields() {
    return {{.name = "step", .is_step = true}, {.name = "exp_avg"}, {.name = "exp_avg_sq"}};
  }

  // The last two: the rectification, or 0, and 1 in steps without it.
  template <typename Scalar>
  static Coefficients<Scalar> coefficients(const RAdamOptions& options, const Scalars<Scalar>& scalars,
                                           const at::Tensor&) {
    using std::pow;
    const auto [beta1, beta2] = options.betas();
    const Scalar step = scalars.get(kStep);
    const Scalar correction2 = 1 - pow(beta2, step);
    const double rho_inf = 2 / (1 - beta2) - 1;
    const Scalar rho = rho_inf - 2 * step * pow(beta2, step) / correction2;
    const Scalar rectification = pow((rho - 4) * (rho - 2) * rho_inf / ((rho_inf - 4) * (rho_inf - 2) * rho), 0.5);
    return {1 - pow(beta1, step), pow(correction2, 0.5), choose(rho > 5, rectification, 0),
            choose(rho > 5, rho * 0, 1)};
  }

  static void update(const RAdamOptions& options, Elementwise& elementwise, const Numbers& numbers) {
    const auto [beta1, beta2] = options.betas();
    const auto& [correction1, correction2_root, rectification, is_plain] = numbers;
    const Operand exp_avg = state_operand(kExpAvg);
    const Operand exp_avg_sq = state_operand(kExpAvgSq);
    const Operand gradient = decayed_gradient(elementwise, options);
    elementwise.lerp(exp_avg, exp_avg, gradient, 1 - beta1);
    elementwise.mul(exp_avg_sq, exp_avg_sq, beta2);
    elementwise.addcmul(exp_avg_sq, exp_avg_sq, gradient, gradient, 1 - beta2);
    const Operand plain = elementwise.temporary();
    elementwise.div(plain, exp_avg, correction1);
    elementwise.mul(plain, plain, options.lr());
    if (is_plain.is(1)) {
      elementwise.add(kParameter, kParameter, plain, -1);
      return;
    }
    const Operand change = elementwise.temporary();
    elementwise.sqrt(change, exp_avg_sq);
    elementwise.add(change, change, options.eps());
    if (!is_plain.is(0)) elementwise.add(change, change, is_plain);  // on devices: never 1 / 0 where it is not used
    elementwise.reciprocal(change, change);
    elementwise.mul(change, change, correction2_root);
    elementwise.mul(change, plain, change);
    elementwise.mul(change, change, rectification);
    if (!is_plain.is(0)) elementwise.add(change, change, plain, is_plain);
    elementwise.add(kParameter, kParameter, change, -1);
  }
};

template class OwnOptimizer<RAdamOptions>;

}  // namespace ddp::optim

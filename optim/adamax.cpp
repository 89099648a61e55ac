#include "optim/own_optimizer.h"

namespace ddp::optim {

std::vector<std::pair<const char*, OptionValue>> AdamaxOptions::list() {
  return {{"lr", &lr_}, {"betas", &betas_}, {"eps", &eps_}, {"weight_decay", &weight_decay_}, {"maximize", &maximize_}};
}

void AdamaxOptions::check(bool may_ascend) const {
  require_value(may_ascend || lr_ >= 0, "Invalid learning rate", lr_);
  require_value(eps_ >= 0, "Invalid epsilon value", eps_);
  require_betas(betas_);
  require_value(weight_decay_ >= 0, "Invalid weight_decay value", weight_decay_);
}

template <>
struct Rule<AdamaxOptions> : ElementwiseRule<AdamaxOptions> {
  enum Field : size_t { kStep, kExpAvg, kExpInf };

  static std::vector<StateField> fields() {
    return {{.name = "step", .is_step = true}, {.name = "exp_avg"}, {.name = "exp_inf"}};
  }

  template <typename Scalar>
  static Coefficients<Scalar> coefficients(const AdamaxOptions& options, const Scalars<Scalar>& scalars,
                                           const at::Tensor&) {
    using std::pow;
    const Scalar correction = 1 - pow(std::get<0>(options.betas()), scalars.get(kStep));
    return {-(options.lr() / correction)};
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
    elementwise.addcdiv(kParameter, kParameter, exp_avg, exp_inf, numbers[0]);
  }
};

template class OwnOptimizer<AdamaxOptions>;

}  // namespace ddp::optim

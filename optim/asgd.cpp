#include "optim/own_optimizer.h"

namespace ddp::optim {

std::vector<std::pair<const char*, OptionValue>> ASGDOptions::list() {
  return {{"lr", &lr_},
          {"lambd", &lambd_},
          {"alpha", &alpha_},
          {"t0", &t0_},
          {"weight_decay", &weight_decay_},
          {"maximize", &maximize_}};
}

void ASGDOptions::check(bool may_ascend) const {
  require_value(may_ascend || lr_ >= 0, "Invalid learning rate", lr_);
  require_value(lambd_ >= 0, "Invalid lambd value", lambd_);
  require_value(alpha_ >= 0, "Invalid alpha value", alpha_);
  require_value(true, "Invalid t0 value", t0_);
  require_value(weight_decay_ >= 0, "Invalid weight_decay value", weight_decay_);
}

template <>
struct Rule<ASGDOptions> : ElementwiseRule<ASGDOptions> {
  enum Field : size_t { kStep, kEta, kMu, kAx };

  static std::vector<StateField> fields() {
    return {{.name = "step", .is_step = true},
            {.name = "eta", .is_scalar = true},
            {.name = "mu", .is_scalar = true},
            {.name = "ax"}};
  }

  static at::Tensor first_value(const ASGDOptions& options, const at::Tensor& parameter, size_t field) {
    if (field == kEta) return scalar_state(parameter, options.lr());
    if (field == kMu) return scalar_state(parameter, 1);
    return ElementwiseRule::first_value(options, parameter, field);
  }

  // With the eta and mu of the step before; those of the next one are stored.
  template <typename Scalar>
  static Coefficients<Scalar> coefficients(const ASGDOptions& options, const Scalars<Scalar>& scalars,
                                           const at::Tensor&) {
    using std::pow;
    const Scalar step = scalars.get(kStep);
    const Scalar eta = scalars.get(kEta);
    const Scalar mu = scalars.get(kMu);
    scalars.set(kEta, options.lr() / pow(1 + options.lambd() * options.lr() * step, options.alpha()));
    scalars.set(kMu, 1 / at_least(step - options.t0(), 1));
    return {1 - options.lambd() * eta, -eta, mu};
  }

  static void update(const ASGDOptions& options, Elementwise& elementwise, const Numbers& numbers) {
    const Operand ax = state_operand(kAx);
    const Operand gradient = decayed_gradient(elementwise, options.weight_decay(), options.maximize());
    elementwise.mul(kParameter, kParameter, numbers[0]);
    elementwise.add(kParameter, kParameter, gradient, numbers[1]);
    if (numbers[2].is(1)) {
      elementwise.copy(ax, kParameter);
      return;
    }
    const Operand difference = elementwise.temporary();
    elementwise.add(difference, kParameter, ax, -1);
    elementwise.mul(difference, difference, numbers[2]);
    elementwise.add(ax, ax, difference, 1);
  }
};

template class OwnOptimizer<ASGDOptions>;

}  // namespace ddp::optim

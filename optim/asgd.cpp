#include "optim/own_optimizer.h"

namespace ddp::optim {

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
    if (field == kEta) return filled_with_rate(scalar_state(parameter, 0), options);
    if (field == kMu) return scalar_state(parameter, 1);
    return ElementwiseRule::first_value(options, parameter, field);
  }

  // Uses the eta and mu that the previous step stored, and stores those of the next step.
  template <typename Scalar>
  static Coefficients<Scalar> coefficients(const ASGDOptions& options, const Scalars<Scalar>& scalars) {
    using std::pow;
    const Scalar step = scalars.get(kStep);
    const Scalar& rate = scalars.rate();
    const Scalar eta = -scalars.get(kEta);
    const Scalar mu = scalars.get(kMu) * 1;
    const Scalar product = scalars.is_on_host() ? options.lambd() * rate * step : step * options.lambd() * rate;
    scalars.set(kEta, rate / pow(1 + product, options.alpha()));
    scalars.set(kMu, 1 / at_least(step - options.t0(), 1));
    return {scalars.is_on_host() ? 1 + options.lambd() * eta : eta, eta, mu};
  }

  static void update(const ASGDOptions& options, Elementwise& elementwise, const Numbers& numbers) {
    const Operand ax = state_operand(kAx);
    Operand gradient = decayed_gradient(elementwise, options.weight_decay(), options.maximize());
    const Operand difference = elementwise.temporary();
    if (numbers[1].is_list()) {
      elementwise.add(difference, gradient, kParameter, options.lambd());
      gradient = difference;
    } else {
      elementwise.mul(kParameter, kParameter, numbers[0]);
    }
    elementwise.add(kParameter, kParameter, gradient, numbers[1]);
    if (numbers[2].is(1)) return elementwise.copy(ax, kParameter);
    elementwise.add(difference, kParameter, ax, -1);
    if (numbers[2].is_list()) return elementwise.add(ax, ax, difference, numbers[2]);
    elementwise.mul(difference, difference, numbers[2]);
    elementwise.add(ax, ax, difference, 1);
  }
};

template class OwnOptimizer<ASGDOptions>;

}  // namespace ddp::optim

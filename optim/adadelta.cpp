#include "optim/own_optimizer.h"

namespace ddp::optim {

void AdadeltaOptions::check(bool may_ascend) const {
  OwnOptions::check(may_ascend);
  require_value(rho_ <= 1, "Invalid rho value", rho_);
}

template <>
struct Rule<AdadeltaOptions> : ElementwiseRule<AdadeltaOptions> {
  enum Field : size_t { kStep, kSquareAvg, kAccDelta };

  static std::vector<StateField> fields() {
    return {{.name = "step", .is_step = true}, {.name = "square_avg"}, {.name = "acc_delta"}};
  }

  static void update(const AdadeltaOptions& options, Elementwise& elementwise, const Numbers& numbers) {
    const Operand square_avg = state_operand(kSquareAvg);
    const Operand acc_delta = state_operand(kAccDelta);
    const Operand gradient = decayed_gradient(elementwise, options.weight_decay(), options.maximize());
    elementwise.mul(square_avg, square_avg, options.rho());
    elementwise.addcmul(square_avg, square_avg, gradient, gradient, 1 - options.rho());
    const Operand deviation = elementwise.temporary();
    elementwise.add(deviation, square_avg, options.eps());
    elementwise.sqrt(deviation, deviation);
    const Operand delta = elementwise.temporary();
    elementwise.add(delta, acc_delta, options.eps());
    elementwise.sqrt(delta, delta);
    elementwise.div(delta, delta, deviation);
    elementwise.mul(delta, delta, gradient);
    elementwise.mul(acc_delta, acc_delta, options.rho());
    elementwise.addcmul(acc_delta, acc_delta, delta, delta, 1 - options.rho());
    elementwise.add(kParameter, kParameter, delta, -numbers.rate);
  }
};

template class OwnOptimizer<AdadeltaOptions>;

}  // namespace ddp::optim

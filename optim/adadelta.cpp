#include "optim/own_optimizer.h"

namespace ddp::optim {

std::vector<std::pair<const char*, OptionValue>> AdadeltaOptions::list() {
  return {{"lr", &lr_}, {"rho", &rho_}, {"eps", &eps_}, {"weight_decay", &weight_decay_}, {"maximize", &maximize_}};
}

void AdadeltaOptions::check(bool may_ascend) const {
  require_value(may_ascend || lr_ >= 0, "Invalid learning rate", lr_);
  require_value(rho_ >= 0 && rho_ <= 1, "Invalid rho value", rho_);
  require_value(eps_ >= 0, "Invalid epsilon value", eps_);
  require_value(weight_decay_ >= 0, "Invalid weight_decay value", weight_decay_);
}

template <>
struct Rule<AdadeltaOptions> : ElementwiseRule<AdadeltaOptions> {
  enum Field : size_t { kStep, kSquareAvg, kAccDelta };

  static std::vector<StateField> fields() {
    return {{.name = "step", .is_step = true}, {.name = "square_avg"}, {.name = "acc_delta"}};
  }

  static void update(const AdadeltaOptions& options, Elementwise& elementwise, const Numbers&) {
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
    elementwise.add(kParameter, kParameter, delta, -options.lr());
  }
};

template class OwnOptimizer<AdadeltaOptions>;

}  // namespace ddp::optim

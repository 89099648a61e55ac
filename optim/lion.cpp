#include "optim/own_optimizer.h"

namespace ddp::optim {

std::vector<std::pair<const char*, OptionValue>> LionOptions::list() {
  return {{"lr", &lr_}, {"betas", &betas_}, {"weight_decay", &weight_decay_}, {"maximize", &maximize_}};
}

void LionOptions::check(bool may_ascend) const {
  require_value(may_ascend || lr_ >= 0, "Invalid learning rate", lr_);
  require_betas(betas_);
  require_value(weight_decay_ >= 0, "Invalid weight_decay value", weight_decay_);
}

template <>
struct Rule<LionOptions> : ElementwiseRule<LionOptions> {
  static std::vector<StateField> fields() { return {{.name = "exp_avg"}}; }

  static void update(const LionOptions& options, Elementwise& elementwise, const Numbers&) {
    const auto [beta1, beta2] = options.betas();
    const Operand exp_avg = state_operand(0);
    const Operand gradient = decayed_gradient(elementwise, 0, options.maximize());
    if (options.weight_decay() != 0) {
      elementwise.mul(kParameter, kParameter, 1 - options.lr() * options.weight_decay());
    }
    const Operand change = elementwise.temporary();
    elementwise.mul(change, exp_avg, beta1);
    elementwise.add(change, change, gradient, 1 - beta1);
    elementwise.sign(change, change);
    elementwise.add(kParameter, kParameter, change, -options.lr());
    elementwise.mul(exp_avg, exp_avg, beta2);
    elementwise.add(exp_avg, exp_avg, gradient, 1 - beta2);
  }
};

template class OwnOptimizer<LionOptions>;

}  // namespace ddp::optim

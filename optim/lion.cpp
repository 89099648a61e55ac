#include "optim/own_optimizer.h"

namespace ddp::optim {

template <>
struct Rule<LionOptions> : ElementwiseRule<LionOptions> {
  static std::vector<StateField> fields() { return {{.name = "exp_avg"}}; }

  static void update(const LionOptions& options, Elementwise& elementwise, const Numbers& numbers) {
    const auto [beta1, beta2] = options.betas();
    const Operand exp_avg = state_operand(0);
    const Operand gradient = decayed_gradient(elementwise, 0, options.maximize());
    if (options.weight_decay() != 0) {
      elementwise.mul(kParameter, kParameter, numbers.kept);
    }
    const Operand change = elementwise.temporary();
    elementwise.mul(change, exp_avg, beta1);
    elementwise.add(change, change, gradient, 1 - beta1);
    elementwise.sign(change, change);
    elementwise.add(kParameter, kParameter, change, -numbers.rate);
    elementwise.mul(exp_avg, exp_avg, beta2);
    elementwise.add(exp_avg, exp_avg, gradient, 1 - beta2);
  }
};

template class OwnOptimizer<LionOptions>;

}  // namespace ddp::optim

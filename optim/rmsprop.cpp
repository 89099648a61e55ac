#include "optim/own_optimizer.h"

namespace ddp::optim {

RMSpropOptions::RMSpropOptions(const Base& options)
    : lr_(options.lr()),
      alpha_(options.alpha()),
      eps_(options.eps()),
      weight_decay_(options.weight_decay()),
      momentum_(options.momentum()),
      centered_(options.centered()) {}

template <>
struct Rule<RMSpropOptions> : ElementwiseRule<RMSpropOptions> {
  enum Field : size_t { kStep, kSquareAvg, kMomentumBuffer, kGradAvg };

  static std::vector<StateField> fields() {
    return {{.name = "step", .is_step = true},
            {.name = "square_avg"},
            {.name = "momentum_buffer", .optional = true},
            {.name = "grad_avg", .optional = true}};
  }

  static bool has(const RMSpropOptions& options, const at::Tensor&, size_t field) {
    return field == kMomentumBuffer ? options.momentum() > 0 : field == kGradAvg ? options.centered() : true;
  }

  static void update(const RMSpropOptions& options, Elementwise& elementwise, const Numbers& numbers) {
    const Operand square_avg = state_operand(kSquareAvg);
    const Operand gradient = decayed_gradient(elementwise, options.weight_decay(), options.maximize());
    elementwise.mul(square_avg, square_avg, options.alpha());
    elementwise.addcmul(square_avg, square_avg, gradient, gradient, 1 - options.alpha());
    const Operand average = elementwise.temporary();
    if (options.centered()) {
      const Operand grad_avg = state_operand(kGradAvg);
      elementwise.lerp(grad_avg, grad_avg, gradient, 1 - options.alpha());
      elementwise.addcmul(average, square_avg, grad_avg, grad_avg, -1);
      elementwise.sqrt(average, average);
    } else {
      elementwise.sqrt(average, square_avg);
    }
    elementwise.add(average, average, options.eps());
    if (options.momentum() > 0) {
      const Operand buffer = state_operand(kMomentumBuffer);
      elementwise.mul(buffer, buffer, options.momentum());
      elementwise.addcdiv(buffer, buffer, gradient, average, 1);
      elementwise.add(kParameter, kParameter, buffer, -numbers.rate);
    } else {
      elementwise.addcdiv(kParameter, kParameter, gradient, average, -numbers.rate);
    }
  }
};

template class OwnOptimizer<RMSpropOptions>;

}  // namespace ddp::optim

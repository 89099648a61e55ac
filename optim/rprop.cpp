#include "optim/own_optimizer.h"

namespace ddp::optim {

void RpropOptions::check(bool may_ascend) const {
  const auto [minus, plus] = etas_;
  require_value(may_ascend || lr_ >= 0, "Invalid learning rate", lr_);
  require_value(minus > 0 && minus < 1, "Invalid eta value at index 0", minus);
  require_value(plus > 1, "Invalid eta value at index 1", plus);
  require_value(true, "Invalid step size at index 0", std::get<0>(step_sizes_));
  require_value(true, "Invalid step size at index 1", std::get<1>(step_sizes_));
}

template <>
struct Rule<RpropOptions> : ElementwiseRule<RpropOptions> {
  enum Field : size_t { kStep, kPrev, kStepSize };

  static std::vector<StateField> fields() {
    return {{.name = "step", .is_step = true}, {.name = "prev"}, {.name = "step_size"}};
  }

  static at::Tensor first_value(const RpropOptions& options, const at::Tensor& parameter, size_t field) {
    if (field == kStepSize) return filled_with_rate(at::zeros_like(parameter), options);
    return ElementwiseRule::first_value(options, parameter, field);
  }

  static void update(const RpropOptions& options, Elementwise& elementwise, const Numbers&) {
    const auto [minus, plus] = options.etas();
    const Operand prev = state_operand(kPrev);
    const Operand step_size = state_operand(kStepSize);
    const Operand gradient = decayed_gradient(elementwise, 0, options.maximize());
    const Operand factor = elementwise.temporary();
    elementwise.mul(factor, gradient, prev);
    elementwise.choose_by_sign(factor, factor, plus, minus);
    elementwise.mul(step_size, step_size, factor);
    elementwise.clamp(step_size, step_size, std::get<0>(options.step_sizes()), std::get<1>(options.step_sizes()));
    // An element whose gradient has changed its sign is not changed in this step.
    elementwise.zero_where(prev, gradient, factor, minus);
    elementwise.sign(factor, prev);
    elementwise.addcmul(kParameter, kParameter, factor, step_size, -1);
  }
};

template class OwnOptimizer<RpropOptions>;

}  // namespace ddp::optim

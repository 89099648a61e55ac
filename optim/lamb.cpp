#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>

#include <ddprun/detail/comm/device_copy.h>

#include "optim/own_optimizer.h"

namespace ddp::optim {

std::vector<std::pair<const char*, OptionValue>> LambOptions::list() {
  return {{"lr", &lr_},
          {"bias_correction", &bias_correction_},
          {"betas", &betas_},
          {"eps", &eps_},
          {"weight_decay", &weight_decay_},
          {"grad_averaging", &grad_averaging_},
          {"max_grad_norm", &max_grad_norm_},
          {"adam_w_mode", &adam_w_mode_},
          {"use_nvlamb", &use_nvlamb_}};
}

void LambOptions::check(bool may_ascend) const {
  require_value(may_ascend || lr_ >= 0, "Invalid learning rate", lr_);
  require_value(eps_ >= 0, "Invalid epsilon value", eps_);
  require_betas(betas_);
  require_value(weight_decay_ >= 0, "Invalid weight_decay value", weight_decay_);
  require_value(max_grad_norm_ >= 0, "Invalid max_grad_norm value", max_grad_norm_);
}

template <>
struct Rule<LambOptions> : ElementwiseRule<LambOptions> {
  enum Field : size_t { kStep, kExpAvg, kExpAvgSq, kResult };

  static std::vector<StateField> fields() {
    return {{.name = "step", .is_step = true}, {.name = "exp_avg"}, {.name = "exp_avg_sq"}};
  }

  static std::string dependence(const LambOptions& options, const torch::optim::OptimizerParamGroup&) {
    if (options.max_grad_norm() == 0) return "";
    return "max_grad_norm needs the norm of all gradients; set it to 0 and call clip_grad_norm_() before step()";
  }

  // What the gradients are divided by.
  static at::Tensor prepare_step(const LambOptions& options, const std::vector<std::vector<FusedBatch>>& batches) {
    if (options.max_grad_norm() == 0) return {};
    std::vector<at::Tensor> norms;  // of each batch
    for (const auto& group : batches) {
      for (const auto& batch : group) {
        const at::Tensor norm =
            at::linalg_vector_norm(at::stack(at::_foreach_norm(batch.gradients, 2)).to(at::kFloat), 2);
        norms.push_back(to_device(norm, norms.empty() ? norm.device() : norms.front().device()));
      }
    }
    if (norms.empty()) return {};
    return (at::linalg_vector_norm(at::stack(norms), 2) / options.max_grad_norm()).clamp_min(1);
  }

  static double as_scalar(const at::Tensor& tensor, const double&) { return tensor.item<double>(); }
  static at::Tensor as_scalar(const at::Tensor& tensor, const at::Tensor& other) {
    return to_device(tensor, other.device());
  }

  template <typename Scalar>
  static Coefficients<Scalar> coefficients(const LambOptions& options, const Scalars<Scalar>& scalars,
                                           const at::Tensor& divisor) {
    using std::pow;
    const auto [beta1, beta2] = options.betas();
    const Scalar step = scalars.get(kStep);
    const double correction = options.bias_correction() ? 1 : 0;
    const Scalar clip = divisor.defined() ? as_scalar(divisor, step) : step * 0 + 1;
    return {clip, 1 - correction * pow(beta1, step), 1 - correction * pow(beta2, step)};
  }

  static void update(const LambOptions& options, Elementwise& elementwise, const Numbers& numbers) {
    const auto [beta1, beta2] = options.betas();
    const Operand exp_avg = state_operand(kExpAvg);
    const Operand exp_avg_sq = state_operand(kExpAvgSq);
    const Operand change = state_operand(kResult);
    const Operand gradient = elementwise.temporary();
    elementwise.div(gradient, kGradient, numbers[0]);
    if (!options.adam_w_mode()) elementwise.add(gradient, gradient, kParameter, options.weight_decay());
    elementwise.mul(exp_avg, exp_avg, beta1);
    elementwise.add(exp_avg, exp_avg, gradient, options.grad_averaging() ? 1 - beta1 : 1);
    elementwise.mul(exp_avg_sq, exp_avg_sq, beta2);
    elementwise.addcmul(exp_avg_sq, exp_avg_sq, gradient, gradient, 1 - beta2);
    const Operand divisor = elementwise.temporary();
    elementwise.div(divisor, exp_avg_sq, numbers[2]);
    elementwise.sqrt(divisor, divisor);
    elementwise.add(divisor, divisor, options.eps());
    elementwise.div(change, exp_avg, numbers[1]);
    elementwise.div(change, change, divisor);
    if (options.adam_w_mode()) elementwise.add(change, change, kParameter, options.weight_decay());
  }

  static double ratio(double parameter_norm, double change_norm) {
    return parameter_norm > 0 && change_norm > 0 ? parameter_norm / change_norm : 1;
  }
  static at::Tensor ratio(const at::Tensor& parameter_norm, const at::Tensor& change_norm) {
    const at::Tensor is_positive = parameter_norm.gt(0).logical_and(change_norm.gt(0));
    return at::where(is_positive, parameter_norm / change_norm, at::Scalar(1.0));
  }

  // Scales each tensor's change by the ratio of the norms, where both are positive.
  static void finish(const LambOptions& options, FusedBatch& batch, const std::vector<at::Tensor>& changes) {
    const bool adapts = options.use_nvlamb() || options.weight_decay() != 0;
    const auto wide = at::promote_types(batch.dtype, at::kFloat);
    for (size_t i = 0; i < changes.size(); ++i) {
      const at::Tensor& parameter = batch.parameters[i];
      if (!adapts) {
        parameter.add_(changes[i], -options.lr());
        continue;
      }
      const at::Tensor parameter_norm = at::linalg_vector_norm(parameter, 2, {}, false, wide);
      const at::Tensor change_norm = at::linalg_vector_norm(changes[i], 2, {}, false, wide);
      if (batch.device.is_cpu()) {
        const double rate = options.lr() * ratio(parameter_norm.item<double>(), change_norm.item<double>());
        // In float32 at least: the rate may be larger than 16-bit numbers.
        const at::Tensor sum = parameter.to(wide);
        subtract_scaled(sum, changes[i].to(wide), rate);
        if (!sum.is_same(parameter)) parameter.copy_(sum);
      } else {
        subtract_scaled(parameter, changes[i], ratio(parameter_norm, change_norm) * options.lr());
      }
    }
  }
};

template class OwnOptimizer<LambOptions>;

}  // namespace ddp::optim

#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/where.h>

#include <ddprun/detail/comm/shard_group.h>
#include <ddprun/optim/clip_grad.h>

#include "optim/own_optimizer.h"

namespace ddp::optim {

template <>
struct Rule<LambOptions> : ElementwiseRule<LambOptions> {
  enum Field : size_t { kStep, kExpAvg, kExpAvgSq, kResult };

  static void check_parameter(const at::Tensor& parameter) {
    refuse_shards({parameter}, "Lamb", "Use an optimizer that works element by element, such as AdamW.");
  }

  static std::vector<StateField> fields() {
    return {{.name = "step", .is_step = true}, {.name = "exp_avg"}, {.name = "exp_avg_sq"}};
  }

  static std::string dependence(const LambOptions& options, const torch::optim::OptimizerParamGroup&) {
    if (options.max_grad_norm() == 0) return "";
    return "max_grad_norm needs the norm of all gradients; set it to 0 and call clip_grad_norm_() before step()";
  }

  // Returns the norm of all gradients, if a group needs it. Its last bit depends on the order of the gradients, which
  // is the order of the parameters.
  static at::Tensor prepare_step(const std::vector<torch::optim::OptimizerParamGroup>& groups) {
    std::vector<at::Tensor> gradients;
    bool is_needed = false;
    for (const auto& group : groups) {
      is_needed |= static_cast<const LambOptions&>(group.options()).max_grad_norm() != 0;
      for (const at::Tensor& parameter : group.params()) {
        if (parameter.grad().defined()) gradients.push_back(parameter.grad());
      }
    }
    if (!is_needed || gradients.empty()) return {};
    // With a scale, get_total_norm() returns float32 norms for 16-bit gradients.
    return get_total_norm(gradients, {.grad_scale = at::ones({}, gradients.front().options().dtype(at::kFloat))});
  }

  template <typename Scalar>
  static Coefficients<Scalar> coefficients(const LambOptions& options, const Scalars<Scalar>& scalars) {
    using std::pow;
    const auto [beta1, beta2] = options.betas();
    const Scalar step = scalars.get(kStep);
    const double correction = options.bias_correction() ? 1 : 0;
    const Scalar clip =
        options.max_grad_norm() != 0 ? at_least(scalars.shared() / options.max_grad_norm(), 1) : Scalar(1);
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

  // Returns a plain number if the norms are on the CPU.
  static UpdateScalar trust_ratio(const at::Tensor& parameter_norm, const at::Tensor& change_norm) {
    const at::Tensor is_positive = parameter_norm.gt(0).logical_and(change_norm.gt(0));
    if (!is_positive.is_cpu())
      return UpdateScalar(at::where(is_positive, parameter_norm / change_norm, at::Scalar(1.0)));
    return is_positive.item<bool>() ? parameter_norm.item<double>() / change_norm.item<double>() : 1.0;
  }

  // Scales each tensor's change by the ratio of the norms if both are positive.
  static void finish(const LambOptions& options, FusedBatch& batch, const std::vector<at::Tensor>& changes,
                     const UpdateScalar& rate) {
    const auto wide = at::promote_types(batch.dtype, at::kFloat);
    for (size_t i = 0; i < changes.size(); ++i) {
      const at::Tensor& parameter = batch.parameters[i];
      if (!options.use_nvlamb() && options.weight_decay() == 0) {
        subtract_scaled(parameter, changes[i], rate);
        continue;
      }
      const UpdateScalar ratio = trust_ratio(at::linalg_vector_norm(parameter, 2, {}, false, wide),
                                             at::linalg_vector_norm(changes[i], 2, {}, false, wide));
      // Computed at least in float32, because the rate may exceed the range of 16-bit numbers.
      const at::Tensor sum = parameter.to(wide);
      subtract_scaled(sum, changes[i].to(wide), rate * ratio);
      if (!sum.is_same(parameter)) parameter.copy_(sum);
    }
  }
};

template class OwnOptimizer<LambOptions>;

}  // namespace ddp::optim

#include <ATen/TensorOperators.h>
#include <ATen/ops/_foreach_lerp.h>

#include <stdexcept>
#include <string>

#include "base/rank_prefix.h"
#include "ddprun/optim/averaged_model.h"

namespace ddp::optim {
namespace {

void check_decay(double decay) {
  if (decay >= 0 && decay <= 1) return;
  throw std::invalid_argument(rank_prefix() + "Invalid decay value " + std::to_string(decay) +
                              " provided. Please provide a value in [0,1] range.");
}

// LibTorch's lerp knows floating-point and complex tensors only.
bool can_lerp(const std::vector<at::Tensor>& tensors) {
  return tensors.front().is_floating_point() || tensors.front().is_complex();
}

}  // namespace

AverageFunction get_ema_avg_fn(double decay) {
  check_decay(decay);
  return [decay](const at::Tensor& averaged, const at::Tensor& current, int64_t /*n_averaged*/) {
    return decay * averaged + (1 - decay) * current;
  };
}

MultiAverageFunction get_ema_multi_avg_fn(double decay) {
  check_decay(decay);
  return [decay](const std::vector<at::Tensor>& averaged, const std::vector<at::Tensor>& current, int64_t /*n*/) {
    if (can_lerp(averaged)) {
      at::_foreach_lerp_(averaged, current, 1 - decay);
      return;
    }
    for (size_t i = 0; i < averaged.size(); ++i) averaged[i].copy_(averaged[i] * decay + current[i] * (1 - decay));
  };
}

AverageFunction get_swa_avg_fn() {
  return [](const at::Tensor& averaged, const at::Tensor& current, int64_t n_averaged) {
    return averaged + (current - averaged) / (n_averaged + 1);
  };
}

MultiAverageFunction get_swa_multi_avg_fn() {
  return [](const std::vector<at::Tensor>& averaged, const std::vector<at::Tensor>& current, int64_t n_averaged) {
    if (can_lerp(averaged)) {
      // Python divides tensors here, so its weight is rounded to float32 for every dtype.
      at::_foreach_lerp_(averaged, current, static_cast<double>(1.0F / static_cast<float>(n_averaged + 1)));
      return;
    }
    for (size_t i = 0; i < averaged.size(); ++i) {
      averaged[i].copy_(averaged[i] + (current[i] - averaged[i]) / (n_averaged + 1));
    }
  };
}

}  // namespace ddp::optim

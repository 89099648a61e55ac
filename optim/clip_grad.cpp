#include "ddprun/optim/clip_grad.h"

#include <ATen/TensorOperators.h>
#include <ATen/native/ForeachUtils.h>
#include <ATen/ops/_foreach_clamp_max.h>
#include <ATen/ops/_foreach_clamp_min.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <cmath>
#include <optional>
#include <stdexcept>
#include <unordered_set>
#include <utility>

#include <ddprun/detail/comm/device_copy.h>

#include "base/rank_prefix.h"
#include "comm/core/graph_capture.h"
#include "optim/device_groups.h"

namespace ddp::optim {
namespace {

// Of each parameter once: LibTorch's parameters() repeats what is registered under two names, Python's does not.
std::vector<at::Tensor> dense_gradients(const std::vector<at::Tensor>& parameters, const char* function) {
  std::vector<at::Tensor> gradients;
  std::unordered_set<const void*> seen;
  for (const auto& parameter : parameters) {
    if (!parameter.grad().defined() || !seen.insert(parameter.unsafeGetTensorImpl()).second) continue;
    if (parameter.grad().layout() != at::kStrided) {
      throw std::invalid_argument(rank_prefix() + function + " does not support sparse gradients");
    }
    gradients.push_back(parameter.grad());
  }
  return gradients;
}

// By device and dtype, in Python's order: the norm of mixed dtypes is rounded by it.
std::vector<std::vector<at::Tensor>> grouped(const std::vector<at::Tensor>& gradients) {
  const at::native::nested_optional_tensorvec_t lists = {{gradients.begin(), gradients.end()}};
  std::vector<std::vector<at::Tensor>> groups;
  for (const auto& [key, members] : at::native::_group_tensors_by_first_tensors_device_and_dtype(lists, false)) {
    auto& group = groups.emplace_back();
    for (const auto& gradient : members.first.front()) group.push_back(*gradient);
  }
  return groups;
}

// Without the tensors that have no elements: they add nothing to a norm, but their infinite one is an error of
// LibTorch's.
std::vector<at::Tensor> with_elements(std::vector<at::Tensor> gradients) {
  std::erase_if(gradients, [](const at::Tensor& gradient) { return gradient.numel() == 0; });
  return gradients;
}

// With `widen` the norms of 16-bit gradients are taken in float32.
at::Tensor total_norm(const std::vector<std::vector<at::Tensor>>& groups, c10::Device device, double norm_type,
                      bool widen) {
  std::vector<at::Tensor> norms;
  for (const auto& group : groups) {
    std::optional<at::ScalarType> dtype;
    if (widen && at::isReducedFloatingType(group.front().scalar_type())) dtype = at::kFloat;
    for (const auto& norm : at::_foreach_norm(group, norm_type, dtype)) norms.push_back(norm.to(device));
  }
  return at::linalg_vector_norm(at::stack(norms), norm_type);
}

}  // namespace

at::Tensor clip_grad_norm_(const std::vector<at::Tensor>& parameters, double max_norm,
                           const ClipGradNormOptions& options) {
  if (std::isnan(options.norm_type) || std::isnan(max_norm)) {
    throw std::invalid_argument(rank_prefix() + "clip_grad_norm_: max_norm and norm_type must be numbers");
  }
  const auto& scale = options.grad_scale;
  if (scale.defined() && (scale.numel() != 1 || scale.scalar_type() != at::kFloat)) {
    throw std::invalid_argument(rank_prefix() + "clip_grad_norm_: grad_scale must be a float32 tensor of one element");
  }
  const at::NoGradGuard no_grad;
  auto gradients = dense_gradients(parameters, "clip_grad_norm_");
  if (gradients.empty()) return at::zeros({});
  const c10::Device device = gradients.front().device();
  if (std::isinf(options.norm_type)) gradients = with_elements(std::move(gradients));
  if (gradients.empty()) return at::zeros({}, at::TensorOptions(device));
  const auto groups = grouped(gradients);
  auto norm = total_norm(groups, device, options.norm_type, /*widen=*/scale.defined());
  // The norm of type 0 counts what is not 0, scaled or not.
  if (scale.defined() && options.norm_type != 0) norm = norm / to_device(scale.detach().reshape({}), norm.device());
  if (options.error_if_nonfinite) {
    detail::refuse_capture(rank_prefix() + "clip_grad_norm_ with error_if_nonfinite",
                           "the host reads the norm. Switch it off");
  }
  if (options.error_if_nonfinite && !at::isfinite(norm).item<bool>()) {
    throw std::runtime_error(rank_prefix() + "The total norm of order " + number_text(options.norm_type) +
                             " for gradients from `parameters` is non-finite, so it cannot be clipped. To disable this "
                             "error and scale the gradients by the non-finite norm anyway, set "
                             "`error_if_nonfinite = false`");
  }
  // Python's number / tensor is a product with the reciprocal, which rounds twice.
  const auto factor = at::clamp((norm + 1e-6).reciprocal() * max_norm, std::nullopt, 1.0);
  for (const auto& group : groups) at::_foreach_mul_(group, to_device(factor, group.front().device()));
  return norm;
}

void clip_grad_value_(const std::vector<at::Tensor>& parameters, double clip_value) {
  const at::NoGradGuard no_grad;
  for (const auto& group : by_device_and_dtype(dense_gradients(parameters, "clip_grad_value_"))) {
    at::_foreach_clamp_min_(group, -clip_value);
    at::_foreach_clamp_max_(group, clip_value);
  }
}

}  // namespace ddp::optim

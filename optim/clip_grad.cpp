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
#include <ddprun/detail/comm/shard_group.h>

#include "base/rank_prefix.h"
#include "comm/core/graph_capture.h"

namespace ddp::optim {
namespace {

// Returns the defined tensors without repetitions: LibTorch's parameters() repeats a tensor that is registered under
// two names, and Python's does not.
std::vector<at::Tensor> each_once(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> found;
  std::unordered_set<const void*> seen;
  for (const auto& tensor : tensors) {
    if (tensor.defined() && seen.insert(tensor.unsafeGetTensorImpl()).second) found.push_back(tensor);
  }
  return found;
}

std::vector<at::Tensor> require_dense(std::vector<at::Tensor> tensors, const char* function) {
  std::erase_if(tensors, [](const at::Tensor& tensor) { return !tensor.defined(); });
  for (const auto& tensor : tensors) {
    if (tensor.layout() == at::kStrided) continue;
    throw std::invalid_argument(rank_prefix() + function + " does not support sparse gradients");
  }
  return tensors;
}

std::vector<at::Tensor> dense_gradients(const std::vector<at::Tensor>& parameters, const char* function) {
  auto gradients = each_once(parameters);
  for (auto& each : gradients) each = each.grad();
  return require_dense(std::move(gradients), function);
}

// Removes empty tensors if the norm is the infinity norm: LibTorch cannot compute that norm for them, and they do not
// change the total.
std::vector<at::Tensor> without_empty(std::vector<at::Tensor> tensors, double norm_type) {
  if (std::isinf(norm_type)) std::erase_if(tensors, [](const at::Tensor& tensor) { return tensor.numel() == 0; });
  return tensors;
}

using Groups = std::vector<std::vector<at::Tensor>>;

// Groups tensors by device and dtype, in Python's order, since the rounding of a norm over several dtypes depends on
// the order.
Groups grouped(const std::vector<at::Tensor>& gradients) {
  if (gradients.empty()) return {};
  const at::native::nested_optional_tensorvec_t lists = {{gradients.begin(), gradients.end()}};
  Groups groups;
  for (const auto& [key, members] : at::native::_group_tensors_by_first_tensors_device_and_dtype(lists, false)) {
    auto& group = groups.emplace_back();
    for (const auto& gradient : members.first.front()) group.push_back(*gradient);
  }
  return groups;
}

void check_number(double value, const char* function, const char* name) {
  if (std::isnan(value)) throw std::invalid_argument(rank_prefix() + function + ": " + name + " must be a number");
}

void check_options(const ClipGradNormOptions& options, const char* function) {
  check_number(options.norm_type, function, "norm_type");
  const auto& scale = options.grad_scale;
  if (scale.defined() && (scale.numel() != 1 || scale.scalar_type() != at::kFloat)) {
    throw std::invalid_argument(rank_prefix() + function + ": grad_scale must be a float32 tensor of one element");
  }
}

// If there is a scale, the norms of 16-bit tensors are computed in float32.
at::Tensor norm_of(const Groups& groups, c10::Device device, const ClipGradNormOptions& options, const char* function) {
  if (groups.empty()) return at::zeros({}, at::TensorOptions(device));
  const auto& scale = options.grad_scale;
  std::vector<at::Tensor> norms;
  for (const auto& group : groups) {
    std::optional<at::ScalarType> dtype;
    if (scale.defined() && at::isReducedFloatingType(group.front().scalar_type())) dtype = at::kFloat;
    for (const auto& norm : at::_foreach_norm(group, options.norm_type, dtype)) norms.push_back(norm.to(device));
  }
  auto norm = at::linalg_vector_norm(at::stack(norms), options.norm_type);
  // The norm of type 0 counts the nonzero elements, so the scale does not change it.
  if (scale.defined() && options.norm_type != 0) norm = norm / to_device(scale.detach().reshape({}), norm.device());
  if (!options.error_if_nonfinite) return norm;
  detail::refuse_capture(rank_prefix() + function + " with error_if_nonfinite",
                         "the host reads the norm. Switch it off");
  if (!at::isfinite(norm).item<bool>()) {
    throw std::runtime_error(rank_prefix() + "The total norm of order " + number_text(options.norm_type) +
                             " for gradients from `parameters` is non-finite, so it cannot be clipped. To disable this "
                             "error and scale the gradients by the non-finite norm anyway, set "
                             "`error_if_nonfinite = false`");
  }
  return norm;
}

void scale_down(const Groups& groups, double max_norm, const at::Tensor& norm) {
  // Python computes number / tensor as a product with the reciprocal, which rounds twice.
  const auto factor = at::clamp((norm + 1e-6).reciprocal() * max_norm, std::nullopt, 1.0);
  for (const auto& group : groups) at::_foreach_mul_(group, to_device(factor, group.front().device()));
}

}  // namespace

at::Tensor clip_grad_norm_(const std::vector<at::Tensor>& parameters, double max_norm,
                           const ClipGradNormOptions& options) {
  check_number(max_norm, "clip_grad_norm_", "max_norm");
  check_options(options, "clip_grad_norm_");
  refuse_shards(parameters, "clip_grad_norm_", "Call clip_grad_norm_() of what fully_shard() has returned.");
  const at::NoGradGuard no_grad;
  const auto gradients = dense_gradients(parameters, "clip_grad_norm_");
  if (gradients.empty()) return at::zeros({});
  const auto groups = grouped(without_empty(gradients, options.norm_type));
  auto norm = norm_of(groups, gradients.front().device(), options, "clip_grad_norm_");
  scale_down(groups, max_norm, norm);
  return norm;
}

at::Tensor get_total_norm(const std::vector<at::Tensor>& tensors, const ClipGradNormOptions& options) {
  check_options(options, "get_total_norm");
  const at::NoGradGuard no_grad;
  const auto found = require_dense(each_once(tensors), "get_total_norm");
  if (found.empty()) return at::zeros({});
  return norm_of(grouped(without_empty(found, options.norm_type)), found.front().device(), options, "get_total_norm");
}

void clip_grads_with_norm_(const std::vector<at::Tensor>& parameters, double max_norm, const at::Tensor& total_norm) {
  check_number(max_norm, "clip_grads_with_norm_", "max_norm");
  if (!total_norm.defined() || total_norm.numel() != 1 || total_norm.is_complex()) {
    throw std::invalid_argument(rank_prefix() +
                                "clip_grads_with_norm_: total_norm must be a tensor of one real number");
  }
  const at::NoGradGuard no_grad;
  scale_down(grouped(dense_gradients(parameters, "clip_grads_with_norm_")), max_norm, total_norm.detach().reshape({}));
}

void clip_grad_value_(const std::vector<at::Tensor>& parameters, double clip_value) {
  const at::NoGradGuard no_grad;
  for (const auto& group : grouped(dense_gradients(parameters, "clip_grad_value_"))) {
    at::_foreach_clamp_min_(group, -clip_value);
    at::_foreach_clamp_max_(group, clip_value);
  }
}

}  // namespace ddp::optim

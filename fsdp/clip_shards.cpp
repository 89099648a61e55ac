#include "fsdp/clip_shards.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <optional>
#include <stdexcept>
#include <string>
#include <unordered_set>

#include <ddprun/comm/collectives.h>
#include <ddprun/detail/comm/shard_group.h>

#include "base/rank_prefix.h"

namespace ddp::fsdp {
namespace {

std::vector<at::Tensor> gradients_of(const std::vector<at::Tensor>& shards) {
  std::vector<at::Tensor> gradients;
  std::unordered_set<const void*> seen;  // parameters() repeats a parameter that is registered twice
  for (const at::Tensor& shard : shards) {
    if (!shard.grad().defined() || !shard_place_of(shard)) continue;  // parameters that are ignored are not shards
    if (seen.insert(shard.unsafeGetTensorImpl()).second) gradients.push_back(shard.grad());
  }
  return gradients;
}

// One norm per gradient. LibTorch cannot compute the infinity norm of a tensor without elements.
at::Tensor local_norms(const std::vector<at::Tensor>& gradients, double norm_type) {
  std::vector<at::Tensor> filled;
  for (const at::Tensor& gradient : gradients) {
    if (gradient.numel() > 0) filled.push_back(gradient);
  }
  std::vector<at::Tensor> norms;
  std::vector<at::Tensor> of_filled;
  if (!filled.empty()) of_filled = at::_foreach_norm(filled, norm_type);
  size_t next = 0;
  for (const at::Tensor& gradient : gradients) {
    norms.push_back(gradient.numel() > 0 ? of_filled[next++] : at::zeros({}, gradient.options().requires_grad(false)));
  }
  return at::stack(norms);
}

at::Tensor reduced(const at::Tensor& values, const GroupHandle& group, ReduceOp op, c10::Device device) {
  if (group.size() == 1) return values;
  at::Tensor there = values.to(device);
  all_reduce(there, group, op);
  return there.to(values.device());
}

}  // namespace

at::Tensor clip_shards(const std::vector<at::Tensor>& shards, double max_norm, double norm_type,
                       const GroupHandle& group, c10::Device device) {
  if (std::isnan(max_norm) || !(norm_type > 0)) {
    throw std::invalid_argument(who(group.info()) + ": clip_grad_norm_: expected a max_norm that is a number and a " +
                                "norm_type above 0, got " + number_text(max_norm) + " and " + number_text(norm_type));
  }
  const at::NoGradGuard no_grad;
  const std::vector<at::Tensor> gradients = gradients_of(shards);
  if (gradients.empty()) return at::zeros({});
  at::Tensor norms = local_norms(gradients, norm_type);
  at::Tensor norm;
  if (std::isinf(norm_type)) {
    norm = at::linalg_vector_norm(norms, norm_type);
    norm = reduced(norm, group, ReduceOp::kMax, device);
  } else {
    norms = norms.pow(norm_type);
    norms = reduced(norms, group, ReduceOp::kSum, device);
    norm = at::linalg_vector_norm(norms.pow(1 / norm_type), norm_type);
  }
  // Python's number / tensor is a product with the reciprocal, which rounds twice.
  at::_foreach_mul_(gradients, at::clamp((norm + 1e-6).reciprocal() * max_norm, std::nullopt, 1.0));
  return norm;
}

}  // namespace ddp::fsdp

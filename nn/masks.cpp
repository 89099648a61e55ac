#include "nn/masks.h"

#include <ATen/ops/full.h>
#include <ATen/ops/triu.h>
#include <ATen/ops/zeros_like.h>

#include <limits>
#include <stdexcept>
#include <string>

#include "base/rank_prefix.h"

namespace ddp::nn::detail {

namespace {
constexpr double kHidden = -std::numeric_limits<double>::infinity();
}

at::Tensor additive_mask(const at::Tensor& mask, const char* name, at::ScalarType dtype) {
  if (!mask.defined() || mask.is_floating_point()) return mask;
  if (mask.scalar_type() != at::kBool) {
    throw std::invalid_argument(
        rank_prefix() + name + " is of " + c10::toString(mask.scalar_type()) +
        "; a mask of bool (true: not to be attended to) or of floating-point numbers is needed");
  }
  return at::zeros_like(mask, mask.options().dtype(dtype)).masked_fill_(mask, kHidden);
}

bool has_floats(const at::Tensor& mask) {
  return mask.defined() && mask.is_floating_point();
}

at::Tensor causal_mask(int64_t size, const at::TensorOptions& options) {
  return at::triu(at::full({size, size}, kHidden, options), 1);
}

bool is_causal_mask(const at::Tensor& mask, std::optional<bool> is_causal, int64_t size) {
  if (is_causal || !mask.defined()) return is_causal.value_or(false);
  const auto causal = causal_mask(size, at::TensorOptions(mask.device()).dtype(mask.scalar_type()));
  return mask.sizes() == causal.sizes() && (mask == causal).all().item<bool>();
}

int64_t sequence_length(const at::Tensor& x, bool batch_first) {
  return x.size(x.dim() == 3 && batch_first ? 1 : 0);
}

}  // namespace ddp::nn::detail

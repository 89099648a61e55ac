#include "nn/fast_path.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

namespace ddp::nn::detail {

bool may_be_fused(std::initializer_list<at::Tensor> tensors) {
  const auto fits = [](const at::Tensor& tensor) {
    if (!tensor.defined()) return true;
    const auto device = tensor.device().type();
    if (device != at::kCPU && device != at::kCUDA && device != at::kXPU && device != at::kPrivateUse1) return false;
    return !(at::GradMode::is_enabled() && tensor.requires_grad());
  };
  return std::all_of(tensors.begin(), tensors.end(), fits);
}

bool is_cuda_autocast() {
  return at::autocast::is_autocast_enabled(at::kCUDA);
}

std::pair<at::Tensor, std::optional<int64_t>> merged_mask(const at::Tensor& attn_mask,
                                                          const at::Tensor& key_padding_mask, const at::Tensor& query,
                                                          int64_t num_heads) {
  if (!attn_mask.defined()) {
    return {key_padding_mask, key_padding_mask.defined() ? std::optional<int64_t>(1) : std::nullopt};
  }
  const auto batch = query.size(0);
  const auto length = query.size(1);
  auto merged = attn_mask.dim() == 3 ? attn_mask.view({batch, -1, length, length})
                                     : attn_mask.view({1, 1, length, length}).expand({batch, num_heads, -1, -1});
  if (key_padding_mask.defined()) {
    merged = merged + key_padding_mask.view({batch, 1, 1, length}).expand({-1, num_heads, -1, -1});
  }
  return {merged, 2};
}

}  // namespace ddp::nn::detail

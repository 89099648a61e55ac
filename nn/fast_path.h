// The conditions and masks for LibTorch's fused inference layers. Python calls these layers whenever the conditions
// hold.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <utility>

namespace ddp::nn::detail {

/// Whether all tensors are on devices for which the fused layers are implemented, and none requires a gradient.
bool may_be_fused(std::initializer_list<at::Tensor> tensors);

/// Whether autocast is enabled for CUDA, which is what Python's torch.is_autocast_enabled() returns.
bool is_cuda_autocast();

/// Merges the two additive masks of self-attention on `query`, (N, S, E), into one. Returns it with its type for the
/// fused layers: 1 for a mask of the keys, (N, S); 2 for a mask for each head. Both are empty if there is no mask.
std::pair<at::Tensor, std::optional<int64_t>> merged_mask(const at::Tensor& attn_mask,
                                                          const at::Tensor& key_padding_mask, const at::Tensor& query,
                                                          int64_t num_heads);

}  // namespace ddp::nn::detail

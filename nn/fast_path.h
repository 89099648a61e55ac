// What LibTorch's fused layers for inference ask for, which Python calls where it can.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <utility>

namespace ddp::nn::detail {

/// Whether all of the tensors are where the fused layers are implemented, and none needs a gradient.
bool may_be_fused(std::initializer_list<at::Tensor> tensors);

/// Whether autocast is on, as Python's torch.is_autocast_enabled() says: CUDA's.
bool is_cuda_autocast();

/// The two additive masks of self-attention on `query`, (N, S, E), as one, and its kind for the fused layers: 1 of the
/// keys, (N, S), 2 of each head. Undefined without any.
std::pair<at::Tensor, std::optional<int64_t>> merged_mask(const at::Tensor& attn_mask,
                                                          const at::Tensor& key_padding_mask, const at::Tensor& query,
                                                          int64_t num_heads);

}  // namespace ddp::nn::detail

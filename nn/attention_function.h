// Attention of projected queries on projected keys and values, as Python's
// torch.nn.functional.multi_head_attention_forward().
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <tuple>

namespace ddp::nn::detail {

/// Weights and settings; tensors may be undefined as in MultiheadAttentionImpl.
struct AttentionSettings {
  int64_t num_heads;
  const at::Tensor& in_proj_weight;
  const at::Tensor& q_proj_weight;
  const at::Tensor& k_proj_weight;
  const at::Tensor& v_proj_weight;
  const at::Tensor& in_proj_bias;
  const at::Tensor& bias_k;
  const at::Tensor& bias_v;
  bool add_zero_attn;
  const at::Tensor& out_proj_weight;
  const at::Tensor& out_proj_bias;
  double dropout;  ///< 0 in eval mode
  bool need_weights;
  bool average_attn_weights;
  bool is_causal;
};

/// (attention, weights) of a query (L, N, E) or (L, E); see MultiheadAttentionImpl::forward(). The masks are additive
/// ones or undefined.
std::tuple<at::Tensor, at::Tensor> attend(at::Tensor query, at::Tensor key, at::Tensor value,
                                          at::Tensor key_padding_mask, at::Tensor attn_mask,
                                          const AttentionSettings& settings);

}  // namespace ddp::nn::detail

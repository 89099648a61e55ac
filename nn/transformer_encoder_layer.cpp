#include <ATen/ops/_transformer_encoder_layer_fwd.h>

#include "ddprun/nn/transformer.h"
#include "nn/activation.h"
#include "nn/fast_path.h"
#include "nn/masks.h"

namespace ddp::nn {

TransformerLayerOptions::TransformerLayerOptions(int64_t d_model, int64_t nhead) : d_model_(d_model), nhead_(nhead) {}

TransformerLayerOptions::TransformerLayerOptions(const torch::nn::TransformerEncoderLayerOptions& options)
    : d_model_(options.d_model()),
      nhead_(options.nhead()),
      dim_feedforward_(options.dim_feedforward()),
      dropout_(options.dropout()),
      activation_(options.activation()) {}

TransformerLayerOptions::TransformerLayerOptions(const torch::nn::TransformerDecoderLayerOptions& options)
    : d_model_(options.d_model()),
      nhead_(options.nhead()),
      dim_feedforward_(options.dim_feedforward()),
      dropout_(options.dropout()),
      activation_(options.activation()) {}

TransformerEncoderLayerImpl::TransformerEncoderLayerImpl(int64_t d_model, int64_t nhead)
    : TransformerEncoderLayerImpl(TransformerLayerOptions(d_model, nhead)) {}

TransformerEncoderLayerImpl::TransformerEncoderLayerImpl(const TransformerLayerOptions& options_) : options(options_) {
  TransformerEncoderLayerImpl::reset();
}

void TransformerEncoderLayerImpl::reset() {
  const auto size = options.d_model();
  const auto norm = [&] {
    return torch::nn::LayerNorm(torch::nn::LayerNormOptions({size}).eps(options.layer_norm_eps()));
  };
  const auto drop = [&] { return torch::nn::Dropout(options.dropout()); };
  self_attn = register_module("self_attn", MultiheadAttention(MultiheadAttentionOptions(size, options.nhead())
                                                                  .dropout(options.dropout())
                                                                  .batch_first(options.batch_first())));
  linear1 = register_module("linear1", Linear(size, options.dim_feedforward()));
  dropout = register_module("dropout", drop());
  linear2 = register_module("linear2", Linear(options.dim_feedforward(), size));
  norm1 = register_module("norm1", norm());
  norm2 = register_module("norm2", norm());
  dropout1 = register_module("dropout1", drop());
  dropout2 = register_module("dropout2", drop());
}

bool TransformerEncoderLayerImpl::takes_fast_path(const at::Tensor& src, bool has_mask) const {
  if (is_training() || src.dim() != 3 || !options.batch_first() || options.nhead() % 2 != 0) return false;
  if (detail::has_custom_activation(options.activation()) || norm1->options.eps() != norm2->options.eps() ||
      (src.is_nested() && has_mask) || detail::is_cuda_autocast()) {
    return false;
  }
  return detail::may_be_fused({src, self_attn->in_proj_weight, self_attn->in_proj_bias, self_attn->out_proj->weight,
                               self_attn->out_proj->bias, norm1->weight, norm1->bias, norm2->weight, norm2->bias,
                               linear1->weight, linear1->bias, linear2->weight, linear2->bias});
}

at::Tensor TransformerEncoderLayerImpl::fused(const at::Tensor& src, const at::Tensor& mask,
                                              const at::Tensor& padding) {
  const auto [merged, kind] = detail::merged_mask(mask, padding, src, options.nhead());
  return at::_transformer_encoder_layer_fwd(
      src, options.d_model(), options.nhead(), self_attn->in_proj_weight, self_attn->in_proj_bias,
      self_attn->out_proj->weight, self_attn->out_proj->bias, detail::is_gelu(options.activation()),
      options.norm_first(), norm1->options.eps(), norm1->weight, norm1->bias, norm2->weight, norm2->bias,
      linear1->weight, linear1->bias, linear2->weight, linear2->bias,
      merged.defined() ? std::optional(merged) : std::nullopt, kind);
}

at::Tensor TransformerEncoderLayerImpl::attend(const at::Tensor& x, const at::Tensor& mask, const at::Tensor& padding,
                                               bool is_causal) {
  return dropout1->forward(std::get<0>(self_attn->forward(x, x, x, padding, /*need_weights=*/false, mask,
                                                          /*average_attn_weights=*/true, is_causal)));
}

at::Tensor TransformerEncoderLayerImpl::feed_forward(const at::Tensor& x) {
  const auto hidden = detail::activate(options.activation(), linear1->forward(x));
  return dropout2->forward(linear2->forward(dropout->forward(hidden)));
}

at::Tensor TransformerEncoderLayerImpl::forward(const at::Tensor& src, const at::Tensor& src_mask,
                                                const at::Tensor& src_key_padding_mask, bool is_causal) {
  const auto padding = detail::additive_mask(src_key_padding_mask, "src_key_padding_mask", src.scalar_type());
  const auto mask = detail::additive_mask(src_mask, "src_mask", src.scalar_type());
  if (takes_fast_path(src, mask.defined() || padding.defined())) return fused(src, mask, padding);
  if (options.norm_first()) {
    const auto attended = src + attend(norm1->forward(src), mask, padding, is_causal);
    return attended + feed_forward(norm2->forward(attended));
  }
  const auto attended = norm1->forward(src + attend(src, mask, padding, is_causal));
  return norm2->forward(attended + feed_forward(attended));
}

}  // namespace ddp::nn

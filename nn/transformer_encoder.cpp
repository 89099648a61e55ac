#include <ATen/ops/_nested_tensor_from_mask.h>
#include <ATen/ops/_nested_tensor_from_mask_left_aligned.h>
#include <ATen/ops/_transformer_encoder_layer_fwd.h>

#include <utility>

#include "ddprun/nn/transformer.h"
#include "nn/activation.h"
#include "nn/fast_path.h"
#include "nn/layer_copies.h"
#include "nn/masks.h"

namespace ddp::nn {

TransformerEncoderOptions::TransformerEncoderOptions(TransformerEncoderLayer encoder_layer, int64_t num_layers)
    : encoder_layer_(std::move(encoder_layer)), num_layers_(num_layers) {}

TransformerEncoderImpl::TransformerEncoderImpl(TransformerEncoderLayer encoder_layer, int64_t num_layers)
    : TransformerEncoderImpl(TransformerEncoderOptions(std::move(encoder_layer), num_layers)) {}

TransformerEncoderImpl::TransformerEncoderImpl(TransformerEncoderOptions options_) : options(std::move(options_)) {
  TransformerEncoderImpl::reset();
}

void TransformerEncoderImpl::reset() {
  layers = register_module("layers", detail::copies_of(options.encoder_layer(), options.num_layers()));
  norm = detail::copy_of(options.norm());
  if (!norm.is_empty()) register_module("norm", norm.ptr());
}

TransformerEncoderLayerImpl& TransformerEncoderImpl::layer(size_t index) {
  return layers->at<TransformerEncoderLayerImpl>(index);
}

bool TransformerEncoderImpl::leaves_out_padding(const at::Tensor& src, const at::Tensor& mask,
                                                const at::Tensor& padding) {
  const auto& first = layer(0);
  const auto& kind = first.options;
  if (!options.enable_nested_tensor() || kind.norm_first() || !kind.batch_first() || kind.nhead() % 2 != 0 ||
      detail::has_custom_activation(kind.activation()) || first.norm1->options.eps() != first.norm2->options.eps()) {
    return false;
  }
  if (first.is_training() || src.dim() != 3 || !padding.defined() || mask.defined() || detail::is_cuda_autocast())
    return false;
  if (options.mask_check() && !at::_nested_tensor_from_mask_left_aligned(src, padding.logical_not())) return false;
  const auto& attention = first.self_attn;
  return !src.is_nested() &&
         detail::may_be_fused({src, attention->in_proj_weight, attention->in_proj_bias, attention->out_proj->weight,
                               attention->out_proj->bias, first.norm1->weight, first.norm1->bias, first.norm2->weight,
                               first.norm2->bias, first.linear1->weight, first.linear1->bias, first.linear2->weight,
                               first.linear2->bias});
}

at::Tensor TransformerEncoderImpl::forward(const at::Tensor& src, const at::Tensor& mask,
                                           const at::Tensor& src_key_padding_mask, std::optional<bool> is_causal) {
  auto padding = detail::additive_mask(src_key_padding_mask, "src_key_padding_mask", src.scalar_type());
  const auto scores_mask = detail::additive_mask(mask, "mask", src.scalar_type());
  auto output = src;
  const bool is_shortened = leaves_out_padding(src, scores_mask, padding);
  if (is_shortened) {
    output = at::_nested_tensor_from_mask(src, padding.logical_not(), /*mask_check=*/false);
    padding.reset();
  }
  const auto length = detail::sequence_length(src, layer(0).options.batch_first());
  const bool causal = detail::is_causal_mask(scores_mask, is_causal, length);
  for (size_t i = 0; i < layers->size(); ++i) output = layer(i).forward(output, scores_mask, padding, causal);
  if (is_shortened) output = output.to_padded_tensor(0.0, src.sizes());
  return norm.is_empty() ? output : norm.forward<at::Tensor>(output);
}

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

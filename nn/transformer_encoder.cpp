#include <ATen/ops/_nested_tensor_from_mask.h>
#include <ATen/ops/_nested_tensor_from_mask_left_aligned.h>

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

}  // namespace ddp::nn

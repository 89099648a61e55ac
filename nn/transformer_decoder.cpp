#include <utility>

#include "ddprun/nn/transformer.h"
#include "nn/activation.h"
#include "nn/layer_copies.h"
#include "nn/masks.h"

namespace ddp::nn {

TransformerDecoderOptions::TransformerDecoderOptions(TransformerDecoderLayer decoder_layer, int64_t num_layers)
    : decoder_layer_(std::move(decoder_layer)), num_layers_(num_layers) {}

TransformerDecoderImpl::TransformerDecoderImpl(TransformerDecoderLayer decoder_layer, int64_t num_layers)
    : TransformerDecoderImpl(TransformerDecoderOptions(std::move(decoder_layer), num_layers)) {}

TransformerDecoderImpl::TransformerDecoderImpl(TransformerDecoderOptions options_) : options(std::move(options_)) {
  TransformerDecoderImpl::reset();
}

void TransformerDecoderImpl::reset() {
  layers = register_module("layers", detail::copies_of(options.decoder_layer(), options.num_layers()));
  norm = detail::copy_of(options.norm());
  if (!norm.is_empty()) register_module("norm", norm.ptr());
}

at::Tensor TransformerDecoderImpl::forward(const at::Tensor& tgt, const at::Tensor& memory, const at::Tensor& tgt_mask,
                                           const at::Tensor& memory_mask, const at::Tensor& tgt_key_padding_mask,
                                           const at::Tensor& memory_key_padding_mask, std::optional<bool> tgt_is_causal,
                                           bool memory_is_causal) {
  const auto length = detail::sequence_length(tgt, layers->at<TransformerDecoderLayerImpl>(0).options.batch_first());
  const bool causal = detail::is_causal_mask(tgt_mask, tgt_is_causal, length);
  auto output = tgt;
  for (size_t i = 0; i < layers->size(); ++i) {
    output = layers->at<TransformerDecoderLayerImpl>(i).forward(
        output, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask, causal, memory_is_causal);
  }
  return norm.is_empty() ? output : norm.forward<at::Tensor>(output);
}

TransformerDecoderLayerImpl::TransformerDecoderLayerImpl(int64_t d_model, int64_t nhead)
    : TransformerDecoderLayerImpl(TransformerLayerOptions(d_model, nhead)) {}

TransformerDecoderLayerImpl::TransformerDecoderLayerImpl(const TransformerLayerOptions& options_) : options(options_) {
  TransformerDecoderLayerImpl::reset();
}

void TransformerDecoderLayerImpl::reset() {
  const auto size = options.d_model();
  const auto attention = [&] {
    return MultiheadAttention(
        MultiheadAttentionOptions(size, options.nhead()).dropout(options.dropout()).batch_first(options.batch_first()));
  };
  const auto norm = [&] {
    return torch::nn::LayerNorm(torch::nn::LayerNormOptions({size}).eps(options.layer_norm_eps()));
  };
  const auto drop = [&] { return torch::nn::Dropout(options.dropout()); };
  self_attn = register_module("self_attn", attention());
  multihead_attn = register_module("multihead_attn", attention());
  linear1 = register_module("linear1", Linear(size, options.dim_feedforward()));
  dropout = register_module("dropout", drop());
  linear2 = register_module("linear2", Linear(options.dim_feedforward(), size));
  norm1 = register_module("norm1", norm());
  norm2 = register_module("norm2", norm());
  norm3 = register_module("norm3", norm());
  dropout1 = register_module("dropout1", drop());
  dropout2 = register_module("dropout2", drop());
  dropout3 = register_module("dropout3", drop());
}

at::Tensor TransformerDecoderLayerImpl::feed_forward(const at::Tensor& x) {
  const auto hidden = detail::activate(options.activation(), linear1->forward(x));
  return dropout3->forward(linear2->forward(dropout->forward(hidden)));
}

at::Tensor TransformerDecoderLayerImpl::forward(const at::Tensor& tgt, const at::Tensor& memory,
                                                const at::Tensor& tgt_mask, const at::Tensor& memory_mask,
                                                const at::Tensor& tgt_key_padding_mask,
                                                const at::Tensor& memory_key_padding_mask, bool tgt_is_causal,
                                                bool memory_is_causal) {
  const auto attend_self = [&](const at::Tensor& x) {
    return dropout1->forward(
        std::get<0>(self_attn->forward(x, x, x, tgt_key_padding_mask, /*need_weights=*/false, tgt_mask,
                                       /*average_attn_weights=*/true, tgt_is_causal)));
  };
  const auto attend_memory = [&](const at::Tensor& x) {
    return dropout2->forward(std::get<0>(multihead_attn->forward(x, memory, memory, memory_key_padding_mask,
                                                                 /*need_weights=*/false, memory_mask,
                                                                 /*average_attn_weights=*/true, memory_is_causal)));
  };
  auto x = tgt;
  if (options.norm_first()) {
    x = x + attend_self(norm1->forward(x));
    x = x + attend_memory(norm2->forward(x));
    return x + feed_forward(norm3->forward(x));
  }
  x = norm1->forward(x + attend_self(x));
  x = norm2->forward(x + attend_memory(x));
  return norm3->forward(x + feed_forward(x));
}

}  // namespace ddp::nn

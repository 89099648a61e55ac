#include <utility>

#include "ddprun/nn/transformer.h"
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

}  // namespace ddp::nn

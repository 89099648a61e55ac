#include "ddprun/nn/transformer.h"

#include <torch/nn/init.h>

#include <sstream>
#include <stdexcept>

#include "base/rank_prefix.h"
#include "nn/masks.h"

namespace ddp::nn {

TransformerOptions::TransformerOptions(int64_t d_model, int64_t nhead) : d_model_(d_model), nhead_(nhead) {}

TransformerOptions::TransformerOptions(int64_t d_model, int64_t nhead, int64_t num_encoder_layers,
                                       int64_t num_decoder_layers)
    : d_model_(d_model),
      nhead_(nhead),
      num_encoder_layers_(num_encoder_layers),
      num_decoder_layers_(num_decoder_layers) {}

TransformerImpl::TransformerImpl() : TransformerImpl(TransformerOptions()) {}

TransformerImpl::TransformerImpl(const TransformerOptions& options_) : options(options_) {
  TransformerImpl::reset();
}

void TransformerImpl::reset() {
  const auto layer = TransformerLayerOptions(options.d_model(), options.nhead())
                         .dim_feedforward(options.dim_feedforward())
                         .dropout(options.dropout())
                         .activation(options.activation())
                         .layer_norm_eps(options.layer_norm_eps())
                         .batch_first(options.batch_first())
                         .norm_first(options.norm_first());
  const auto norm = [&] {
    return torch::nn::AnyModule(
        torch::nn::LayerNorm(torch::nn::LayerNormOptions({options.d_model()}).eps(options.layer_norm_eps())));
  };
  encoder = register_module(
      "encoder",
      TransformerEncoder(
          TransformerEncoderOptions(TransformerEncoderLayer(layer), options.num_encoder_layers()).norm(norm())));
  decoder = register_module(
      "decoder",
      TransformerDecoder(
          TransformerDecoderOptions(TransformerDecoderLayer(layer), options.num_decoder_layers()).norm(norm())));
  reset_parameters();
}

void TransformerImpl::reset_parameters() {
  for (const auto& parameter : parameters()) {
    if (parameter.dim() > 1) torch::nn::init::xavier_uniform_(parameter);
  }
}

at::Tensor TransformerImpl::forward(const at::Tensor& src, const at::Tensor& tgt, const at::Tensor& src_mask,
                                    const at::Tensor& tgt_mask, const at::Tensor& memory_mask,
                                    const at::Tensor& src_key_padding_mask, const at::Tensor& tgt_key_padding_mask,
                                    const at::Tensor& memory_key_padding_mask, std::optional<bool> src_is_causal,
                                    std::optional<bool> tgt_is_causal, bool memory_is_causal) {
  const auto batch = options.batch_first() ? 0 : 1;
  const bool fits = src.dim() == tgt.dim() && (src.dim() != 3 || src.size(batch) == tgt.size(batch)) &&
                    src.size(-1) == options.d_model() && tgt.size(-1) == options.d_model();
  if (!fits) {
    std::ostringstream text;
    text << rank_prefix() << "Transformer: src has the shape " << src.sizes() << " and tgt " << tgt.sizes()
         << "; equal batches and d_model = " << options.d_model() << " features are needed";
    throw std::invalid_argument(text.str());
  }
  const auto memory = encoder->forward(src, src_mask, src_key_padding_mask, src_is_causal);
  return decoder->forward(tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask,
                          tgt_is_causal, memory_is_causal);
}

at::Tensor TransformerImpl::generate_square_subsequent_mask(int64_t size, const at::TensorOptions& tensor_options) {
  return detail::causal_mask(size, tensor_options);
}

}  // namespace ddp::nn

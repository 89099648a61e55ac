// Encoder, decoder and the whole transformer, with the bits of Python's. Reference: torch.nn.TransformerEncoder,
// torch.nn.TransformerDecoder and torch.nn.Transformer; Vaswani et al., "Attention Is All You Need", 2017.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/arg.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/common.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/options/transformer.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <optional>

#include <ddprun/nn/transformer_layers.h>

namespace ddp::nn {

/// Options of TransformerEncoder.
struct TransformerEncoderOptions {
  /// `num_layers` copies of `encoder_layer`; the layer itself is not one of them.
  TransformerEncoderOptions(TransformerEncoderLayer encoder_layer, int64_t num_layers);

  /// The layer that is copied.
  TORCH_ARG(TransformerEncoderLayer, encoder_layer) = nullptr;
  /// Number of copies.
  TORCH_ARG(int64_t, num_layers);
  /// What the result of the last layer goes through, usually a torch::nn::LayerNorm; may be empty.
  TORCH_ARG(torch::nn::AnyModule, norm);
  /// Whether padding is left out of the computation where no gradient is needed, as in Python; the result is 0 there.
  TORCH_ARG(bool, enable_nested_tensor) = true;
  /// Whether that is done only where all padding is at the ends of the sequences.
  TORCH_ARG(bool, mask_check) = true;
};

/// What a TransformerEncoder holder points to.
class TransformerEncoderImpl : public torch::nn::Cloneable<TransformerEncoderImpl> {
 public:
  TransformerEncoderImpl(TransformerEncoderLayer encoder_layer, int64_t num_layers);
  explicit TransformerEncoderImpl(TransformerEncoderOptions options);

  /// Passes `src` through the layers; shapes and masks as TransformerEncoderLayerImpl::forward()'s. Whether `mask` is
  /// the causal one is found out unless `is_causal` says it.
  at::Tensor forward(const at::Tensor& src, const at::Tensor& mask = {}, const at::Tensor& src_key_padding_mask = {},
                     std::optional<bool> is_causal = std::nullopt);

  /// Copies the layer. Draws no random numbers, as in Python; LibTorch's encoder does.
  void reset() override;

  TransformerEncoderOptions options;
  torch::nn::ModuleList layers{nullptr};
  torch::nn::AnyModule norm;

 protected:
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(at::Tensor())}, {2, torch::nn::AnyValue(at::Tensor())},
                           {3, torch::nn::AnyValue(std::optional<bool>())})

 private:
  TransformerEncoderLayerImpl& layer(size_t index);
  bool leaves_out_padding(const at::Tensor& src, const at::Tensor& mask, const at::Tensor& padding);
};

/// An encoder, used as torch::nn::TransformerEncoder, with Python's parameter names.
TORCH_MODULE(TransformerEncoder);

/// Options of TransformerDecoder.
struct TransformerDecoderOptions {
  /// `num_layers` copies of `decoder_layer`; the layer itself is not one of them.
  TransformerDecoderOptions(TransformerDecoderLayer decoder_layer, int64_t num_layers);

  /// The layer that is copied.
  TORCH_ARG(TransformerDecoderLayer, decoder_layer) = nullptr;
  /// Number of copies.
  TORCH_ARG(int64_t, num_layers);
  /// What the result of the last layer goes through, usually a torch::nn::LayerNorm; may be empty.
  TORCH_ARG(torch::nn::AnyModule, norm);
};

/// What a TransformerDecoder holder points to.
class TransformerDecoderImpl : public torch::nn::Cloneable<TransformerDecoderImpl> {
 public:
  TransformerDecoderImpl(TransformerDecoderLayer decoder_layer, int64_t num_layers);
  explicit TransformerDecoderImpl(TransformerDecoderOptions options);

  /// Passes `tgt` through the layers; shapes and masks as TransformerDecoderLayerImpl::forward()'s. Whether `tgt_mask`
  /// is the causal one is found out unless `tgt_is_causal` says it.
  at::Tensor forward(const at::Tensor& tgt, const at::Tensor& memory, const at::Tensor& tgt_mask = {},
                     const at::Tensor& memory_mask = {}, const at::Tensor& tgt_key_padding_mask = {},
                     const at::Tensor& memory_key_padding_mask = {}, std::optional<bool> tgt_is_causal = std::nullopt,
                     bool memory_is_causal = false);

  /// Copies the layer. Draws no random numbers, as in Python; LibTorch's decoder does.
  void reset() override;

  TransformerDecoderOptions options;
  torch::nn::ModuleList layers{nullptr};
  torch::nn::AnyModule norm;

 protected:
  FORWARD_HAS_DEFAULT_ARGS({2, torch::nn::AnyValue(at::Tensor())}, {3, torch::nn::AnyValue(at::Tensor())},
                           {4, torch::nn::AnyValue(at::Tensor())}, {5, torch::nn::AnyValue(at::Tensor())},
                           {6, torch::nn::AnyValue(std::optional<bool>())}, {7, torch::nn::AnyValue(false)})
};

/// A decoder, used as torch::nn::TransformerDecoder, with Python's parameter names.
TORCH_MODULE(TransformerDecoder);

/// Options of Transformer: those of torch::nn's without custom parts, and Python's layer_norm_eps, batch_first and
/// norm_first.
struct TransformerOptions {
  TransformerOptions() = default;
  TransformerOptions(int64_t d_model, int64_t nhead);
  TransformerOptions(int64_t d_model, int64_t nhead, int64_t num_encoder_layers, int64_t num_decoder_layers);

  /// Size of each feature vector.
  TORCH_ARG(int64_t, d_model) = 512;
  /// Number of attention heads.
  TORCH_ARG(int64_t, nhead) = 8;
  /// Number of layers of the encoder.
  TORCH_ARG(int64_t, num_encoder_layers) = 6;
  /// Number of layers of the decoder.
  TORCH_ARG(int64_t, num_decoder_layers) = 6;
  /// As TransformerLayerOptions's, of all layers.
  TORCH_ARG(int64_t, dim_feedforward) = 2048;
  TORCH_ARG(double, dropout) = 0.1;
  TORCH_ARG(torch::nn::activation_t, activation) = torch::kReLU;
  TORCH_ARG(double, layer_norm_eps) = 1e-5;
  TORCH_ARG(bool, batch_first) = false;
  TORCH_ARG(bool, norm_first) = false;
};

/// What a Transformer holder points to.
class TransformerImpl : public torch::nn::Cloneable<TransformerImpl> {
 public:
  TransformerImpl();
  explicit TransformerImpl(const TransformerOptions& options);

  /// Returns the decoder's result for `tgt`, with the encoder's for `src` as memory; shapes and masks as the layers'.
  /// Throws std::invalid_argument when the batches or feature sizes of `src` and `tgt` differ.
  at::Tensor forward(const at::Tensor& src, const at::Tensor& tgt, const at::Tensor& src_mask = {},
                     const at::Tensor& tgt_mask = {}, const at::Tensor& memory_mask = {},
                     const at::Tensor& src_key_padding_mask = {}, const at::Tensor& tgt_key_padding_mask = {},
                     const at::Tensor& memory_key_padding_mask = {}, std::optional<bool> src_is_causal = std::nullopt,
                     std::optional<bool> tgt_is_causal = std::nullopt, bool memory_is_causal = false);

  /// Makes the parts and draws their values: the numbers that Python draws with the same seed.
  void reset() override;
  /// Draws new values for every matrix (Glorot's uniform distribution).
  void reset_parameters();

  /// The mask that hides what comes later in a sequence: (size, size), −∞ above the diagonal and 0 elsewhere.
  static at::Tensor generate_square_subsequent_mask(int64_t size, const at::TensorOptions& tensor_options = {});

  TransformerOptions options;
  TransformerEncoder encoder{nullptr};
  TransformerDecoder decoder{nullptr};

 protected:
  FORWARD_HAS_DEFAULT_ARGS({2, torch::nn::AnyValue(at::Tensor())}, {3, torch::nn::AnyValue(at::Tensor())},
                           {4, torch::nn::AnyValue(at::Tensor())}, {5, torch::nn::AnyValue(at::Tensor())},
                           {6, torch::nn::AnyValue(at::Tensor())}, {7, torch::nn::AnyValue(at::Tensor())},
                           {8, torch::nn::AnyValue(std::optional<bool>())},
                           {9, torch::nn::AnyValue(std::optional<bool>())}, {10, torch::nn::AnyValue(false)})
};

/// A transformer, used as torch::nn::Transformer, with Python's parameter names and initial values.
TORCH_MODULE(Transformer);

}  // namespace ddp::nn

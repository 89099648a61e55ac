// The transformer, its encoder and decoder, and their layers. Results have the same bits as in Python. Reference:
// torch.nn.TransformerEncoderLayer, TransformerDecoderLayer, TransformerEncoder, TransformerDecoder and Transformer;
// Vaswani et al., "Attention Is All You Need", 2017.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/arg.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/common.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/options/transformer.h>
#include <torch/nn/options/transformerlayer.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <optional>

#include <ddprun/nn/linear.h>
#include <ddprun/nn/multihead_attention.h>

namespace ddp::nn {

/// Options of encoder and decoder layers: those of torch::nn, and Python's layer_norm_eps, batch_first and norm_first.
struct TransformerLayerOptions {
  /// Python's defaults, with these sizes.
  TransformerLayerOptions(int64_t d_model, int64_t nhead);
  /// The values of `options`; the other options have Python's defaults.
  TransformerLayerOptions(
      const torch::nn::TransformerEncoderLayerOptions& options);  // NOLINT(google-explicit-constructor)
  /// The same for the options of LibTorch's decoder layer.
  TransformerLayerOptions(
      const torch::nn::TransformerDecoderLayerOptions& options);  // NOLINT(google-explicit-constructor)

  /// The size of each feature vector. Of all options, only activation and norm_first may be changed after construction.
  TORCH_ARG(int64_t, d_model);
  /// Number of attention heads.
  TORCH_ARG(int64_t, nhead);
  /// Size of the hidden layer between the two linear ones.
  TORCH_ARG(int64_t, dim_feedforward) = 2048;
  /// The probability with which every dropout layer drops an element in training.
  TORCH_ARG(double, dropout) = 0.1;
  /// torch::kReLU, torch::kGELU or a function.
  TORCH_ARG(torch::nn::activation_t, activation) = torch::kReLU;
  /// Added to the variance in the layer norms.
  TORCH_ARG(double, layer_norm_eps) = 1e-5;
  /// Whether tensors are (batch, sequence, feature) instead of (sequence, batch, feature).
  TORCH_ARG(bool, batch_first) = false;
  /// Whether the norms come before attention and feed-forward instead of after them.
  TORCH_ARG(bool, norm_first) = false;
};

/// The options of an encoder's layer.
using TransformerEncoderLayerOptions = TransformerLayerOptions;
/// The options of a decoder's layer.
using TransformerDecoderLayerOptions = TransformerLayerOptions;

/// The module that a TransformerEncoderLayer holder points to.
class TransformerEncoderLayerImpl : public torch::nn::Cloneable<TransformerEncoderLayerImpl> {
 public:
  /// The defaults, with these sizes.
  TransformerEncoderLayerImpl(int64_t d_model, int64_t nhead);
  /// Makes the layer. Throws std::invalid_argument as MultiheadAttentionImpl's constructor.
  explicit TransformerEncoderLayerImpl(const TransformerLayerOptions& options);

  /// Applies self-attention and feed-forward to `src` of shape (S, N, d_model), (N, S, d_model) with batch_first, or
  /// (S, d_model). The result has the same shape. Masks are as in MultiheadAttentionImpl::forward(). In eval mode with
  /// batch_first, and if no gradient is needed, it is one call of LibTorch's fused layer, as in Python.
  at::Tensor forward(const at::Tensor& src, const at::Tensor& src_mask = {},
                     const at::Tensor& src_key_padding_mask = {}, bool is_causal = false);

  /// Registers the submodules in Python's order, and draws their initial values.
  void reset() override;

  TransformerLayerOptions options;        ///< the options that were passed
  MultiheadAttention self_attn{nullptr};  ///< self-attention of the sequence
  Linear linear1{nullptr};                ///< feed-forward: from d_model to dim_feedforward
  torch::nn::Dropout dropout{nullptr};    ///< applied between linear1 and linear2
  Linear linear2{nullptr};                ///< feed-forward: from dim_feedforward to d_model
  torch::nn::LayerNorm norm1{nullptr};    ///< of the self-attention
  torch::nn::LayerNorm norm2{nullptr};    ///< of the feed-forward
  torch::nn::Dropout dropout1{nullptr};   ///< applied to the result of the attention
  torch::nn::Dropout dropout2{nullptr};   ///< applied to the result of the feed-forward

 protected:
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(at::Tensor())}, {2, torch::nn::AnyValue(at::Tensor())},
                           {3, torch::nn::AnyValue(false)})

 private:
  bool takes_fast_path(const at::Tensor& src, bool has_mask) const;
  at::Tensor fused(const at::Tensor& src, const at::Tensor& mask, const at::Tensor& padding);
  at::Tensor attend(const at::Tensor& x, const at::Tensor& mask, const at::Tensor& padding, bool is_causal);
  at::Tensor feed_forward(const at::Tensor& x);
};

/// A layer of an encoder, used as torch::nn::TransformerEncoderLayer, with Python's parameter names and initial values.
TORCH_MODULE(TransformerEncoderLayer);

/// The module that a TransformerDecoderLayer holder points to.
class TransformerDecoderLayerImpl : public torch::nn::Cloneable<TransformerDecoderLayerImpl> {
 public:
  /// The defaults, with these sizes.
  TransformerDecoderLayerImpl(int64_t d_model, int64_t nhead);
  /// Makes the layer. Throws std::invalid_argument as MultiheadAttentionImpl's constructor.
  explicit TransformerDecoderLayerImpl(const TransformerLayerOptions& options);

  /// Applies self-attention to `tgt` of shape (T, N, d_model), attention to `memory` of shape (S, N, d_model), and
  /// feed-forward. With batch_first, the shapes are (N, T, d_model) and so on, without a batch (T, d_model) and so on.
  /// The result has the shape of `tgt`. Masks are as in MultiheadAttentionImpl::forward().
  at::Tensor forward(const at::Tensor& tgt, const at::Tensor& memory, const at::Tensor& tgt_mask = {},
                     const at::Tensor& memory_mask = {}, const at::Tensor& tgt_key_padding_mask = {},
                     const at::Tensor& memory_key_padding_mask = {}, bool tgt_is_causal = false,
                     bool memory_is_causal = false);

  /// Registers the submodules in Python's order, and draws their initial values.
  void reset() override;

  TransformerLayerOptions options;             ///< the options that were passed
  MultiheadAttention self_attn{nullptr};       ///< self-attention of the sequence
  MultiheadAttention multihead_attn{nullptr};  ///< attention on the memory
  Linear linear1{nullptr};                     ///< feed-forward: from d_model to dim_feedforward
  torch::nn::Dropout dropout{nullptr};         ///< applied between linear1 and linear2
  Linear linear2{nullptr};                     ///< feed-forward: from dim_feedforward to d_model
  torch::nn::LayerNorm norm1{nullptr};         ///< of the self-attention
  torch::nn::LayerNorm norm2{nullptr};         ///< of the attention on the memory
  torch::nn::LayerNorm norm3{nullptr};         ///< of the feed-forward
  torch::nn::Dropout dropout1{nullptr};        ///< applied to the result of the self-attention
  torch::nn::Dropout dropout2{nullptr};        ///< applied to the result of the attention on the memory
  torch::nn::Dropout dropout3{nullptr};        ///< applied to the result of the feed-forward

 protected:
  FORWARD_HAS_DEFAULT_ARGS({2, torch::nn::AnyValue(at::Tensor())}, {3, torch::nn::AnyValue(at::Tensor())},
                           {4, torch::nn::AnyValue(at::Tensor())}, {5, torch::nn::AnyValue(at::Tensor())},
                           {6, torch::nn::AnyValue(false)}, {7, torch::nn::AnyValue(false)})

 private:
  at::Tensor feed_forward(const at::Tensor& x);
};

/// A layer of a decoder, used as torch::nn::TransformerDecoderLayer, with Python's parameter names and initial values.
TORCH_MODULE(TransformerDecoderLayer);

/// Options of TransformerEncoder.
struct TransformerEncoderOptions {
  /// `num_layers` copies of `encoder_layer`; the layer itself is not one of them.
  TransformerEncoderOptions(TransformerEncoderLayer encoder_layer, int64_t num_layers);

  /// The layer that is copied.
  TORCH_ARG(TransformerEncoderLayer, encoder_layer) = nullptr;
  /// Number of copies.
  TORCH_ARG(int64_t, num_layers);
  /// A module that is applied to the result of the last layer, usually a torch::nn::LayerNorm; may be empty.
  TORCH_ARG(torch::nn::AnyModule, norm);
  /// Whether padding is excluded from the computation if no gradient is needed, as in Python. The result is 0 at padded
  /// positions.
  TORCH_ARG(bool, enable_nested_tensor) = true;
  /// Whether this is done only if all padding is at the ends of the sequences.
  TORCH_ARG(bool, mask_check) = true;
};

/// The module that a TransformerEncoder holder points to.
class TransformerEncoderImpl : public torch::nn::Cloneable<TransformerEncoderImpl> {
 public:
  /// The defaults, with `num_layers` copies of the layer.
  TransformerEncoderImpl(TransformerEncoderLayer encoder_layer, int64_t num_layers);
  /// The same with all options.
  explicit TransformerEncoderImpl(TransformerEncoderOptions options);

  /// Passes `src` through the layers. Shapes and masks are as in TransformerEncoderLayerImpl::forward(). Without
  /// `is_causal`, it checks whether `mask` is the causal mask.
  at::Tensor forward(const at::Tensor& src, const at::Tensor& mask = {}, const at::Tensor& src_key_padding_mask = {},
                     std::optional<bool> is_causal = std::nullopt);

  /// Copies the layer. Draws no random numbers, as in Python; LibTorch's encoder does.
  void reset() override;

  TransformerEncoderOptions options;      ///< the options that were passed
  torch::nn::ModuleList layers{nullptr};  ///< the copies of the layer
  torch::nn::AnyModule norm;              ///< a copy of TransformerEncoderOptions::norm; may be empty

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
  /// A module that is applied to the result of the last layer, usually a torch::nn::LayerNorm; may be empty.
  TORCH_ARG(torch::nn::AnyModule, norm);
};

/// The module that a TransformerDecoder holder points to.
class TransformerDecoderImpl : public torch::nn::Cloneable<TransformerDecoderImpl> {
 public:
  /// The defaults, with `num_layers` copies of the layer.
  TransformerDecoderImpl(TransformerDecoderLayer decoder_layer, int64_t num_layers);
  /// The same with all options.
  explicit TransformerDecoderImpl(TransformerDecoderOptions options);

  /// Passes `tgt` through the layers. Shapes and masks are as in TransformerDecoderLayerImpl::forward(). Without
  /// `tgt_is_causal`, it checks whether `tgt_mask` is the causal mask.
  at::Tensor forward(const at::Tensor& tgt, const at::Tensor& memory, const at::Tensor& tgt_mask = {},
                     const at::Tensor& memory_mask = {}, const at::Tensor& tgt_key_padding_mask = {},
                     const at::Tensor& memory_key_padding_mask = {}, std::optional<bool> tgt_is_causal = std::nullopt,
                     bool memory_is_causal = false);

  /// Copies the layer. Draws no random numbers, as in Python; LibTorch's decoder does.
  void reset() override;

  TransformerDecoderOptions options;      ///< the options that were passed
  torch::nn::ModuleList layers{nullptr};  ///< the copies of the layer
  torch::nn::AnyModule norm;              ///< a copy of TransformerDecoderOptions::norm; may be empty

 protected:
  FORWARD_HAS_DEFAULT_ARGS({2, torch::nn::AnyValue(at::Tensor())}, {3, torch::nn::AnyValue(at::Tensor())},
                           {4, torch::nn::AnyValue(at::Tensor())}, {5, torch::nn::AnyValue(at::Tensor())},
                           {6, torch::nn::AnyValue(std::optional<bool>())}, {7, torch::nn::AnyValue(false)})
};

/// A decoder, used as torch::nn::TransformerDecoder, with Python's parameter names.
TORCH_MODULE(TransformerDecoder);

/// Options of Transformer: those of torch::nn without custom encoders and decoders, and Python's layer_norm_eps,
/// batch_first and norm_first.
struct TransformerOptions {
  /// Python's defaults.
  TransformerOptions() = default;
  /// Python's defaults, with these sizes.
  TransformerOptions(int64_t d_model, int64_t nhead);
  /// Python's defaults, with these sizes and numbers of layers.
  TransformerOptions(int64_t d_model, int64_t nhead, int64_t num_encoder_layers, int64_t num_decoder_layers);

  /// Size of each feature vector.
  TORCH_ARG(int64_t, d_model) = 512;
  /// Number of attention heads.
  TORCH_ARG(int64_t, nhead) = 8;
  /// Number of layers of the encoder.
  TORCH_ARG(int64_t, num_encoder_layers) = 6;
  /// Number of layers of the decoder.
  TORCH_ARG(int64_t, num_decoder_layers) = 6;
  /// Size of the hidden layer between the two linear ones of each layer.
  TORCH_ARG(int64_t, dim_feedforward) = 2048;
  /// The probability with which every dropout layer drops an element in training.
  TORCH_ARG(double, dropout) = 0.1;
  /// torch::kReLU, torch::kGELU or a function.
  TORCH_ARG(torch::nn::activation_t, activation) = torch::kReLU;
  /// Added to the variance in the layer norms.
  TORCH_ARG(double, layer_norm_eps) = 1e-5;
  /// Whether tensors are (batch, sequence, feature) instead of (sequence, batch, feature).
  TORCH_ARG(bool, batch_first) = false;
  /// Whether the norms come before attention and feed-forward instead of after them.
  TORCH_ARG(bool, norm_first) = false;
};

/// The module that a Transformer holder points to.
class TransformerImpl : public torch::nn::Cloneable<TransformerImpl> {
 public:
  /// Python's defaults.
  TransformerImpl();
  /// The same with options.
  explicit TransformerImpl(const TransformerOptions& options);

  /// Returns the decoder's result for `tgt`, with the encoder's result for `src` as memory. Shapes and masks are those
  /// of the layers. Throws std::invalid_argument if the batch sizes or feature sizes of `src` and `tgt` differ.
  at::Tensor forward(const at::Tensor& src, const at::Tensor& tgt, const at::Tensor& src_mask = {},
                     const at::Tensor& tgt_mask = {}, const at::Tensor& memory_mask = {},
                     const at::Tensor& src_key_padding_mask = {}, const at::Tensor& tgt_key_padding_mask = {},
                     const at::Tensor& memory_key_padding_mask = {}, std::optional<bool> src_is_causal = std::nullopt,
                     std::optional<bool> tgt_is_causal = std::nullopt, bool memory_is_causal = false);

  /// Makes the submodules and draws their initial values, which are the same as in Python with the same seed.
  void reset() override;
  /// Draws new values for every matrix (Glorot's uniform distribution).
  void reset_parameters();

  /// Returns the mask that hides later positions of a sequence: (size, size), −∞ above the diagonal and 0 elsewhere.
  static at::Tensor generate_square_subsequent_mask(int64_t size, const at::TensorOptions& tensor_options = {});

  TransformerOptions options;           ///< the options that were passed
  TransformerEncoder encoder{nullptr};  ///< computes the memory from `src`
  TransformerDecoder decoder{nullptr};  ///< computes the result from `tgt` and the memory

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

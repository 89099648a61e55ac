// Attention with several heads whose results have the same bits as Python's. LibTorch's class computes projections and
// scaling differently, supports neither batch_first nor scaled_dot_product_attention, and has no fast path for
// inference. Reference: torch.nn.MultiheadAttention; Vaswani et al., "Attention Is All You Need", 2017.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/arg.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/common.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/options/activation.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <tuple>

#include <ddprun/nn/linear.h>

namespace ddp::nn {

/// Options of MultiheadAttention: those of torch::nn::MultiheadAttention, and batch_first.
struct MultiheadAttentionOptions {
  /// The defaults, with these sizes.
  MultiheadAttentionOptions(int64_t embed_dim, int64_t num_heads);
  /// Everything as in `options`, with batch_first false.
  MultiheadAttentionOptions(
      const torch::nn::MultiheadAttentionOptions& options);  // NOLINT(google-explicit-constructor)

  /// The size of each query and of the result. Of all options, only dropout may be changed after construction.
  TORCH_ARG(int64_t, embed_dim);
  /// Number of heads, a divisor of embed_dim.
  TORCH_ARG(int64_t, num_heads);
  /// The fraction of the attention weights that are dropped in training.
  TORCH_ARG(double, dropout) = 0.0;
  /// Whether the projections have biases.
  TORCH_ARG(bool, bias) = true;
  /// Whether a learned key and a learned value are appended to each sequence.
  TORCH_ARG(bool, add_bias_kv) = false;
  /// Whether a key and a value of zeros are appended to each sequence.
  TORCH_ARG(bool, add_zero_attn) = false;
  /// Size of each key; embed_dim unless set.
  TORCH_ARG(int64_t, kdim);
  /// Size of each value; embed_dim unless set.
  TORCH_ARG(int64_t, vdim);
  /// Whether tensors are (batch, sequence, feature) instead of (sequence, batch, feature).
  TORCH_ARG(bool, batch_first) = false;
};

/// The module that a MultiheadAttention holder points to.
class MultiheadAttentionImpl : public torch::nn::Cloneable<MultiheadAttentionImpl> {
 public:
  /// The defaults, with these sizes.
  MultiheadAttentionImpl(int64_t embed_dim, int64_t num_heads);
  /// Throws std::invalid_argument when embed_dim or num_heads is not positive, or embed_dim is not a multiple of
  /// num_heads.
  explicit MultiheadAttentionImpl(const MultiheadAttentionOptions& options);

  /// Returns (attention of `query` on `key` and `value`, attention weights). The shapes are (L, N, embed_dim) for
  /// `query`, (S, N, kdim) for `key` and (S, N, vdim) for `value`. With batch_first they are (N, L, embed_dim) and so
  /// on, without a batch (L, embed_dim) and so on. The result has the shape of `query`. The weights are (N, L, S), or
  /// (N, num_heads, L, S) if average_attn_weights is false. They are undefined without need_weights, which is faster.
  /// Masks may be undefined. key_padding_mask is (N, S), and attn_mask is (L, S) or (N * num_heads, L, S). A mask has
  /// the dtype bool (true excludes a position) or is added to the scores. is_causal is a hint that attn_mask is the
  /// causal mask. For self-attention, pass the same tensor three times, as in Python: with copies, the projections are
  /// computed separately and rounded differently.
  ///
  /// Throws std::invalid_argument when shapes or the dtypes of masks do not fit.
  std::tuple<at::Tensor, at::Tensor> forward(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                             const at::Tensor& key_padding_mask = {}, bool need_weights = true,
                                             const at::Tensor& attn_mask = {}, bool average_attn_weights = true,
                                             bool is_causal = false);

  /// Registers the parameters and the output projection, and draws their initial values, which are the same as in
  /// Python with the same seed.
  void reset() override;

  /// Whether queries, keys and values have the same size, so that there is one packed projection.
  bool has_packed_projection() const { return in_proj_weight.defined(); }

  MultiheadAttentionOptions options;  ///< the options that were passed
  at::Tensor in_proj_weight;          ///< (3 * embed_dim, embed_dim), or undefined
  at::Tensor q_proj_weight;           ///< (embed_dim, embed_dim) if kdim or vdim differs from it, otherwise undefined
  at::Tensor k_proj_weight;           ///< (embed_dim, kdim), or undefined in the same case
  at::Tensor v_proj_weight;           ///< (embed_dim, vdim), or undefined in the same case
  at::Tensor in_proj_bias;            ///< (3 * embed_dim), or undefined
  at::Tensor bias_k;                  ///< (1, 1, embed_dim), appended to the keys; may be undefined
  at::Tensor bias_v;                  ///< (1, 1, embed_dim), appended to the values; may be undefined
  Linear out_proj{nullptr};           ///< applied to the concatenated results of the heads

 protected:
  FORWARD_HAS_DEFAULT_ARGS({3, torch::nn::AnyValue(at::Tensor())}, {4, torch::nn::AnyValue(true)},
                           {5, torch::nn::AnyValue(at::Tensor())}, {6, torch::nn::AnyValue(true)},
                           {7, torch::nn::AnyValue(false)})

 private:
  void draw_parameters();
  bool takes_fast_path(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value) const;
};

/// Attention, used as torch::nn::MultiheadAttention, with Python's parameter names and initial values.
TORCH_MODULE(MultiheadAttention);

}  // namespace ddp::nn

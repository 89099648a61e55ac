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

  /// Size of each query and of the result. Changing it after construction has no effect, as with all but dropout.
  TORCH_ARG(int64_t, embed_dim);
  /// Number of heads, a divisor of embed_dim.
  TORCH_ARG(int64_t, num_heads);
  /// Share of the attention weights that are dropped in training.
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

  /// Returns (attention of `query` on `key` and `value`, attention weights). Shapes: query (L, N, embed_dim), key
  /// (S, N, kdim), value (S, N, vdim), with batch_first (N, L, ...) and so on, without batch (L, embed_dim) and so on;
  /// the result is as query. The weights are (N, L, S), with average_attn_weights false (N, num_heads, L, S), and
  /// undefined without need_weights, which is the fast way. Masks may be undefined: key_padding_mask (N, S) and
  /// attn_mask (L, S) or (N * num_heads, L, S), of bool (true: not to be attended to) or added to the scores. is_causal
  /// is a hint that attn_mask is the causal mask. Pass one tensor three times for self-attention, as in Python: with
  /// copies the projections are computed apart, and round differently.
  ///
  /// Throws std::invalid_argument when shapes or the dtypes of masks do not fit.
  std::tuple<at::Tensor, at::Tensor> forward(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                             const at::Tensor& key_padding_mask = {}, bool need_weights = true,
                                             const at::Tensor& attn_mask = {}, bool average_attn_weights = true,
                                             bool is_causal = false);

  /// Registers parameters and the output projection, and draws their values: the numbers that Python draws with the
  /// same seed.
  void reset() override;

  /// Whether queries, keys and values have the same size, and so one packed projection.
  bool has_packed_projection() const { return in_proj_weight.defined(); }

  MultiheadAttentionOptions options;  ///< as they were given
  at::Tensor in_proj_weight;          ///< (3 * embed_dim, embed_dim), or undefined
  at::Tensor q_proj_weight;           ///< (embed_dim, embed_dim) where kdim or vdim differs from it, else undefined
  at::Tensor k_proj_weight;           ///< (embed_dim, kdim), likewise
  at::Tensor v_proj_weight;           ///< (embed_dim, vdim), likewise
  at::Tensor in_proj_bias;            ///< (3 * embed_dim), or undefined
  at::Tensor bias_k;                  ///< (1, 1, embed_dim), or undefined: appended to the keys
  at::Tensor bias_v;                  ///< (1, 1, embed_dim), or undefined: appended to the values
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

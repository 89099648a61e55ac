// A decoder-only transformer (Radford et al., "Language Models are Unsupervised Multitask Learners", 2019: GPT-2's
// blocks, normalised before attention and before the perceptron), with the names that small Python ones use.
#pragma once

#include <ATen/ops/scaled_dot_product_attention.h>
#include <torch/nn/init.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include <ddprun/recompute/recompute.h>

namespace models {

struct TransformerOptions {
  int64_t vocabulary = 256;  ///< tokens; bytes of a text
  int64_t context = 128;     ///< longest sequence
  int64_t width = 128;
  int64_t heads = 4;
  int64_t layers = 4;
  double dropout = 0.0;
  bool recompute = false;  ///< keep the blocks' inputs only, and compute the rest again in the backward
};

/// Each token looks at itself and at those before it. Input and output float (N, T, width).
class TransformerBlockImpl : public torch::nn::Module {
 public:
  explicit TransformerBlockImpl(const TransformerOptions& options)
      : ln_1(register_module("ln_1", norm(options.width))),
        qkv(register_module("qkv", torch::nn::Linear(options.width, 3 * options.width))),
        proj(register_module("proj", torch::nn::Linear(options.width, options.width))),
        ln_2(register_module("ln_2", norm(options.width))),
        fc_1(register_module("fc_1", torch::nn::Linear(options.width, 4 * options.width))),
        fc_2(register_module("fc_2", torch::nn::Linear(4 * options.width, options.width))),
        drop(register_module("drop", torch::nn::Dropout(options.dropout))),
        heads_(options.heads) {}

  torch::Tensor forward(const torch::Tensor& x) {
    const auto y = x + drop(proj(attention(ln_1(x))));
    return y + drop(fc_2(torch::gelu(fc_1(ln_2(y)))));
  }

  torch::nn::LayerNorm ln_1;
  torch::nn::Linear qkv, proj;
  torch::nn::LayerNorm ln_2;
  torch::nn::Linear fc_1, fc_2;
  torch::nn::Dropout drop;

 private:
  static torch::nn::LayerNorm norm(int64_t width) { return torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})); }

  torch::Tensor attention(const torch::Tensor& x) {
    const auto n = x.size(0), t = x.size(1), width = x.size(2);
    // (3, N, heads, T, width / heads)
    const auto parts = qkv(x).view({n, t, 3, heads_, width / heads_}).permute({2, 0, 3, 1, 4});
    const auto y = at::scaled_dot_product_attention(parts[0], parts[1], parts[2], /*attn_mask=*/{}, /*dropout_p=*/0.0,
                                                    /*is_causal=*/true);
    return y.transpose(1, 2).reshape({n, t, width});
  }

  int64_t heads_;
};
TORCH_MODULE(TransformerBlock);

/// Input int64 (N, T) with T up to the context, output logits (N, T, vocabulary) of the token that follows each.
class TransformerImpl : public torch::nn::Module {
 public:
  explicit TransformerImpl(const TransformerOptions& options = {})
      : options_(options),
        tokens(register_module("tokens", torch::nn::Embedding(options.vocabulary, options.width))),
        positions(register_module("positions", torch::nn::Embedding(options.context, options.width))),
        drop(register_module("drop", torch::nn::Dropout(options.dropout))) {
    if (options.heads < 1 || options.width % options.heads != 0) {
      throw std::invalid_argument("Transformer: a width of " + std::to_string(options.width) +
                                  " cannot be divided among " + std::to_string(options.heads) + " heads");
    }
    for (int64_t i = 0; i < options.layers; ++i) {
      blocks.push_back(register_module("block" + std::to_string(i), TransformerBlock(options)));
    }
    ln = register_module("ln", torch::nn::LayerNorm(torch::nn::LayerNormOptions({options.width})));
    head = register_module("head",
                           torch::nn::Linear(torch::nn::LinearOptions(options.width, options.vocabulary).bias(false)));
    initialize();
  }

  torch::Tensor forward(const torch::Tensor& text) {
    const int64_t length = text.size(1);
    if (length > options_.context) {
      throw std::invalid_argument("Transformer: expected up to " + std::to_string(options_.context) +
                                  " tokens in a sequence, got " + std::to_string(length));
    }
    const auto places = torch::arange(length, text.options());
    auto x = drop(tokens(text) + positions(places));
    for (auto& block : blocks) x = options_.recompute ? ddp::checkpoint(block, x) : block(x);
    return head(ln(x));
  }

  const TransformerOptions& options() const { return options_; }

 private:
  TransformerOptions options_;

 public:
  torch::nn::Embedding tokens, positions;
  torch::nn::Dropout drop;
  std::vector<TransformerBlock> blocks;
  torch::nn::LayerNorm ln{nullptr};
  torch::nn::Linear head{nullptr};

 private:
  // GPT-2's: what is added to the residual stream is smaller the more layers add to it.
  void initialize() {
    const torch::NoGradGuard no_grad;
    const double residual = 0.02 / std::sqrt(2.0 * static_cast<double>(options_.layers));
    for (auto& parameter : named_parameters()) {
      const bool adds_to_stream = parameter.key().ends_with("proj.weight") || parameter.key().ends_with("fc_2.weight");
      if (parameter.key().ends_with("bias")) {
        torch::nn::init::zeros_(parameter.value());
      } else if (parameter.value().dim() > 1) {
        torch::nn::init::normal_(parameter.value(), 0.0, adds_to_stream ? residual : 0.02);
      }
    }
  }
};
TORCH_MODULE(Transformer);

}  // namespace models

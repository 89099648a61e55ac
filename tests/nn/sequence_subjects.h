// Linear layers, attention and transformers, LibTorch's and ours, for subjects.h.
#pragma once

#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/normalization.h>

#include <string>

#include "tests/nn/subjects.h"

namespace ddp::test {

/// The classes of a library, and what stands before its subjects' names.
template <typename Linear_, typename LinearOptions_, typename Attention_, typename AttentionOptions_,
          typename EncoderLayer_, typename EncoderLayerOptions_, typename DecoderLayer_, typename DecoderLayerOptions_,
          typename Encoder_, typename EncoderOptions_, typename Decoder_, typename DecoderOptions_,
          typename Transformer_, typename TransformerOptions_>
struct SequenceLibrary {
  using Linear = Linear_;
  using LinearOptions = LinearOptions_;
  using Attention = Attention_;
  using AttentionOptions = AttentionOptions_;
  using EncoderLayer = EncoderLayer_;
  using EncoderLayerOptions = EncoderLayerOptions_;
  using DecoderLayer = DecoderLayer_;
  using DecoderLayerOptions = DecoderLayerOptions_;
  using Encoder = Encoder_;
  using EncoderOptions = EncoderOptions_;
  using Decoder = Decoder_;
  using DecoderOptions = DecoderOptions_;
  using Transformer = Transformer_;
  using TransformerOptions = TransformerOptions_;
};

template <typename Library>
void add_linear_layers(Subjects& add, const std::string& prefix) {
  using Linear = typename Library::Linear;
  add[prefix + "Linear"] = make<Linear>(48, 40);
  add[prefix + "Linear, wide"] = make<Linear>(300, 260);
  add[prefix + "Linear, no bias"] = make<Linear>(typename Library::LinearOptions(48, 40).bias(false));
  add[prefix + "Linear, used twice"] =
      make_with([] { return Linear(48, 48); },
                [](Linear& linear, Tensors& x) { return linear->forward(torch::relu(linear->forward(x[0]))); });
}

// The words after "MultiheadAttention, " and the like are Python's arguments.
template <typename Library>
void add_attention(Subjects& add, const std::string& prefix) {
  using Attention = typename Library::Attention;
  using Options = typename Library::AttentionOptions;
  const auto on_itself = [](Options options, bool need_weights) {
    return make_with(
        [=] { return Attention(options); },
        [=](Attention& attention, Tensors& x) { return attention->forward(x[0], x[0], x[0], {}, need_weights); });
  };
  const auto name = prefix + "MultiheadAttention";
  add[name] = make<Attention>(48, 4);
  add[name + ", one memory"] =
      make_with([] { return Attention(48, 4); },
                [](Attention& attention, Tensors& x) { return attention->forward(x[0], x[1], x[1], {}, false); });
  add[name + ", self"] = on_itself(Options(48, 4), true);
  add[name + ", self, need_weights=False"] = on_itself(Options(48, 4), false);
  add[name + ", self, average_attn_weights=False"] = make_with(
      [] { return Attention(48, 4); },
      [](Attention& attention, Tensors& x) { return attention->forward(x[0], x[0], x[0], {}, true, {}, false); });
  add[name + ", self, bias=False"] = on_itself(Options(48, 4).bias(false), true);
  add[name + ", dropout"] = on_itself(Options(48, 4).dropout(0.2), false);
  add[name + ", dropout, weights"] = on_itself(Options(48, 4).dropout(0.2), true);
  add[name + ", kdim, vdim"] = make<Attention>(Options(48, 4).kdim(12).vdim(16));
  add[name + ", add_bias_kv"] = on_itself(Options(48, 4).add_bias_kv(true), true);
  add[name + ", add_zero_attn"] = on_itself(Options(48, 4).add_zero_attn(true), true);
  const auto with_mask = [](bool need_weights) {
    return make_with([] { return Attention(48, 4); },
                     [=](Attention& attention, Tensors& x) {
                       return attention->forward(x[0], x[0], x[0], {}, need_weights, x[1].detach());
                     });
  };
  add[name + ", attn_mask"] = with_mask(false);
  add[name + ", attn_mask, weights"] = with_mask(true);
  const auto with_padding = [](bool need_weights) {
    return make_with(
        [] { return Attention(48, 4); },
        [=](Attention& attention, Tensors& x) { return attention->forward(x[0], x[0], x[0], x[1], need_weights); });
  };
  add[name + ", key_padding_mask"] = with_padding(false);
  add[name + ", key_padding_mask, weights"] = with_padding(true);
}

template <typename Library>
void add_transformers(Subjects& add, const std::string& prefix) {
  using EncoderLayer = typename Library::EncoderLayer;
  using DecoderLayer = typename Library::DecoderLayer;
  using EncoderLayerOptions = typename Library::EncoderLayerOptions;
  using DecoderLayerOptions = typename Library::DecoderLayerOptions;
  add[prefix + "TransformerEncoderLayer"] = make<EncoderLayer>(EncoderLayerOptions(48, 4).dim_feedforward(64));
  add[prefix + "TransformerEncoderLayer, gelu"] =
      make<EncoderLayer>(EncoderLayerOptions(48, 4).dim_feedforward(64).dropout(0).activation(torch::kGELU));
  add[prefix + "TransformerEncoderLayer, mask"] =
      make_with([] { return EncoderLayer(EncoderLayerOptions(48, 4).dim_feedforward(64)); },
                [](EncoderLayer& layer, Tensors& x) { return layer->forward(x[0], x[1].detach()); });
  add[prefix + "TransformerDecoderLayer"] = make<DecoderLayer>(DecoderLayerOptions(48, 4).dim_feedforward(64));
  add[prefix + "TransformerEncoder"] = [] {
    EncoderLayer layer(EncoderLayerOptions(48, 4).dim_feedforward(64).dropout(0));
    torch::nn::AnyModule norm(torch::nn::LayerNorm(torch::nn::LayerNormOptions({48})));
    return subject_of(typename Library::Encoder(typename Library::EncoderOptions(layer, 2).norm(norm)));
  };
  add[prefix + "TransformerDecoder"] = [] {
    DecoderLayer layer(DecoderLayerOptions(48, 4).dim_feedforward(64).dropout(0));
    return subject_of(typename Library::Decoder(typename Library::DecoderOptions(layer, 2)));
  };
  add[prefix + "Transformer"] = make<typename Library::Transformer>(
      typename Library::TransformerOptions(48, 4).num_encoder_layers(2).num_decoder_layers(2).dim_feedforward(64));
}

template <typename Library>
void add_sequence_library(Subjects& add, const std::string& prefix) {
  add_linear_layers<Library>(add, prefix);
  add_attention<Library>(add, prefix);
  add_transformers<Library>(add, prefix);
}

}  // namespace ddp::test

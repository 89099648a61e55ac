// The library's own modules: see subjects.h. Those that LibTorch has too are called "ddp " and its name.
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/normalization.h>

#include <map>
#include <optional>
#include <sstream>
#include <string>

#include <ddprun/amp/autocast.h>
#include <ddprun/nn/linear.h>
#include <ddprun/nn/multihead_attention.h>
#include <ddprun/nn/transformer.h>
#include <ddprun/nn/weights.h>

#include "tests/nn/sequence_subjects.h"

namespace ddp::test {

namespace {

using Ours =
    SequenceLibrary<nn::Linear, nn::LinearOptions, nn::MultiheadAttention, nn::MultiheadAttentionOptions,
                    nn::TransformerEncoderLayer, nn::TransformerEncoderLayerOptions, nn::TransformerDecoderLayer,
                    nn::TransformerDecoderLayerOptions, nn::TransformerEncoder, nn::TransformerEncoderOptions,
                    nn::TransformerDecoder, nn::TransformerDecoderOptions, nn::Transformer, nn::TransformerOptions>;

nn::TransformerLayerOptions small(bool norm_first = false) {
  return nn::TransformerLayerOptions(48, 4).dim_feedforward(64).batch_first(true).norm_first(norm_first);
}

// With masks: input 0 is attended to, the others are attn_mask and key_padding_mask in this order where a case has
// them.
void add_batch_first_attention(Subjects& add) {
  const auto attention = [](bool need_weights, auto call) {
    return make_with([] { return nn::MultiheadAttention(nn::MultiheadAttentionOptions(48, 4).batch_first(true)); },
                     [=](nn::MultiheadAttention& module, Tensors& x) { return call(module, x, need_weights); });
  };
  const auto plain = [](auto& m, Tensors& x, bool weights) { return m->forward(x[0], x[0], x[0], {}, weights); };
  const auto padded = [](auto& m, Tensors& x, bool weights) { return m->forward(x[0], x[0], x[0], x[1], weights); };
  const auto masked = [](auto& m, Tensors& x, bool weights) {
    return m->forward(x[0], x[0], x[0], {}, weights, x[1].detach());
  };
  const auto both = [](auto& m, Tensors& x, bool weights) { return m->forward(x[0], x[0], x[0], x[2], weights, x[1]); };
  const auto memory = [](auto& m, Tensors& x, bool weights) { return m->forward(x[0], x[1], x[1], {}, weights); };
  const auto causal = [](auto& m, Tensors& x, bool weights) {
    return m->forward(x[0], x[0], x[0], {}, weights, nn::TransformerImpl::generate_square_subsequent_mask(x[0].size(1)),
                      true, true);
  };
  for (const bool weights : {false, true}) {
    const std::string end = weights ? ", weights" : "";
    add["ddp batch_first" + end] = attention(weights, plain);
    add["ddp batch_first, key_padding_mask" + end] = attention(weights, padded);
    add["ddp batch_first, attn_mask" + end] = attention(weights, masked);
    add["ddp batch_first, both masks" + end] = attention(weights, both);
    add["ddp batch_first, memory" + end] = attention(weights, memory);
    add["ddp batch_first, is_causal" + end] = attention(weights, causal);
  }
  add["ddp odd heads"] =
      make_with([] { return nn::MultiheadAttention(nn::MultiheadAttentionOptions(48, 3).batch_first(true)); },
                [](nn::MultiheadAttention& m, Tensors& x) { return m->forward(x[0], x[0], x[0]); });
}

void add_batch_first_transformers(Subjects& add) {
  const auto elu = [](const at::Tensor& x) { return at::elu(x); };
  add["ddp encoder layer"] = make<nn::TransformerEncoderLayer>(small());
  add["ddp encoder layer, norm_first"] = make<nn::TransformerEncoderLayer>(small(true));
  add["ddp encoder layer, gelu"] = make<nn::TransformerEncoderLayer>(small().activation(torch::kGELU).dropout(0.3));
  add["ddp encoder layer, elu"] = make<nn::TransformerEncoderLayer>(small().activation(elu).layer_norm_eps(1e-3));
  add["ddp encoder layer, padding"] = make_with([] { return nn::TransformerEncoderLayer(small()); },
                                                [](auto& layer, Tensors& x) { return layer->forward(x[0], {}, x[1]); });
  add["ddp encoder layer, both masks"] =
      make_with([] { return nn::TransformerEncoderLayer(small()); },
                [](auto& layer, Tensors& x) {
                  return layer->forward(x[0], x[1].detach(), x[2].is_floating_point() ? x[2].detach() : x[2]);
                });
  add["ddp decoder layer"] = make<nn::TransformerDecoderLayer>(small());
  add["ddp decoder layer, norm_first, masks"] =
      make_with([] { return nn::TransformerDecoderLayer(small(true)); },
                [](auto& layer, Tensors& x) { return layer->forward(x[0], x[1], x[2], {}, {}, x[3]); });
  const auto encoder = [](int64_t layers) {
    return [layers] {
      return nn::TransformerEncoder(nn::TransformerEncoderOptions(nn::TransformerEncoderLayer(small()), layers));
    };
  };
  add["ddp encoder, padding"] =
      make_with(encoder(2), [](auto& module, Tensors& x) { return module->forward(x[0], {}, x[1]); });
  add["ddp encoder, causal mask"] = make_with(encoder(2), [](auto& module, Tensors& x) {
    return module->forward(x[0], nn::TransformerImpl::generate_square_subsequent_mask(x[0].size(1), x[0].options()));
  });
  add["ddp encoder, mask of bool"] =
      make_with(encoder(1), [](auto& module, Tensors& x) { return module->forward(x[0], x[1]); });
  add["ddp transformer"] = make_with(
      [] {
        return nn::Transformer(
            nn::TransformerOptions(48, 4, 1, 2).dim_feedforward(64).batch_first(true).norm_first(true));
      },
      [](auto& module, Tensors& x) {
        const auto mask = nn::TransformerImpl::generate_square_subsequent_mask(x[1].size(1), x[1].options());
        return module->forward(x[0], x[1], {}, mask, {}, x[2], {}, x[2]);
      });
}

// Frozen modules on inputs without gradients take the fused layers although gradients are enabled.
template <typename Holder>
Holder frozen(Holder holder) {
  for (auto& parameter : holder->parameters()) parameter.requires_grad_(false);
  return holder;
}

void add_frozen(Subjects& add) {
  add["ddp frozen attention"] =
      make_with([] { return frozen(nn::MultiheadAttention(nn::MultiheadAttentionOptions(48, 4).batch_first(true))); },
                [](auto& m, Tensors& x) {
                  const auto input = x[0].detach();
                  return m->forward(input, input, input);
                });
  add["ddp frozen encoder layer"] = make_with([] { return frozen(nn::TransformerEncoderLayer(small())); },
                                              [](auto& m, Tensors& x) { return m->forward(x[0].detach()); });
  add["ddp frozen but for a norm"] = make_with(
      [] {
        auto layer = frozen(nn::TransformerEncoderLayer(small()));
        layer->norm2->weight.requires_grad_(true);
        return layer;
      },
      [](auto& m, Tensors& x) { return m->forward(x[0].detach()); });
  add["ddp other dtype"] =
      make_with([] { return nn::MultiheadAttention(nn::MultiheadAttentionOptions(48, 4).batch_first(true)); },
                [](auto& m, Tensors& x) {
                  // What autocast is for: a layer of float32 behind one of bfloat16.
                  const ddp::Autocast autocast(at::kCPU);
                  const auto input = x[0].to(at::kBFloat16);
                  return m->forward(input, input, input);
                });
}

void add_in_containers(Subjects& add) {
  add["ddp Sequential"] = make_with(
      [] {
        nn::Linear first(48, 40);
        nn::Linear second(40, 8);
        return torch::nn::Sequential(first, second);
      },
      [](auto& net, Tensors& x) { return net->forward(x[0]); });
}

// A parametrized layer that is called once, or twice, as a discriminator is on real and on generated samples.
template <typename Make>
void add_parametrized(Subjects& add, const std::string& name, Make make_layer) {
  add["ddp " + name] = make_with(make_layer, [](auto& layer, Tensors& x) { return layer->forward(x[0]); });
  add["ddp " + name + ", twice"] = make_with(make_layer, [](auto& layer, Tensors& x) {
    const auto first = layer->forward(x[0]);
    return first - layer->forward(x[1]);
  });
}

void add_weight_norms(Subjects& add) {
  add_parametrized(add, "weight_norm Linear", [] { return nn::weight_norm(nn::Linear(48, 40)); });
  add_parametrized(add, "weight_norm Linear, whole",
                   [] { return nn::weight_norm(nn::Linear(48, 40), {.dim = std::nullopt}); });
  add_parametrized(add, "weight_norm Conv2d, dim 1", [] {
    return nn::weight_norm(torch::nn::Conv2d(torch::nn::Conv2dOptions(4, 6, 3).bias(false)), {.dim = 1});
  });
  add_parametrized(add, "weight_norm ConvTranspose1d, last dim", [] {
    return nn::weight_norm(torch::nn::ConvTranspose1d(torch::nn::ConvTranspose1dOptions(4, 6, 3)), {.dim = 2});
  });
  add_parametrized(add, "weight_norm Linear, frozen", [] { return nn::weight_norm(frozen(nn::Linear(48, 40))); });
}

void add_spectral_norms(Subjects& add) {
  add_parametrized(add, "spectral_norm Linear", [] { return nn::spectral_norm(nn::Linear(48, 40)); });
  add_parametrized(add, "spectral_norm Conv2d, 3 iterations", [] {
    return nn::spectral_norm(torch::nn::Conv2d(torch::nn::Conv2dOptions(4, 6, 3)),
                             {.n_power_iterations = 3, .eps = 1e-3});
  });
  add_parametrized(add, "spectral_norm Conv1d, dim -1",
                   [] { return nn::spectral_norm(torch::nn::Conv1d(torch::nn::Conv1dOptions(4, 6, 3)), {.dim = -1}); });
  add_parametrized(add, "spectral_norm ConvTranspose2d", [] {
    return nn::spectral_norm(torch::nn::ConvTranspose2d(torch::nn::ConvTranspose2dOptions(4, 6, 3)));
  });
  add_parametrized(add, "spectral_norm LayerNorm",
                   [] { return nn::spectral_norm(torch::nn::LayerNorm(torch::nn::LayerNormOptions({12}))); });
  add_parametrized(add, "spectral_norm of a layer in eval mode", [] {
    nn::Linear layer(48, 40);
    layer->eval();
    return nn::spectral_norm(layer);
  });
}

}  // namespace

Subject random_subject(const std::string& name) {
  std::map<std::string, int64_t> options;
  std::istringstream words(name);
  for (std::string word; words >> word;) {
    const auto sign = word.find('=');
    if (sign != std::string::npos) options[word.substr(0, sign)] = std::stoll(word.substr(sign + 1));
  }
  const auto flag = [&](const char* key) { return options.at(key) != 0; };
  const auto dropout = static_cast<double>(options.at("dropout")) / 100;
  if (name.starts_with("random attention")) {
    nn::MultiheadAttention attention(nn::MultiheadAttentionOptions(options.at("embed"), options.at("heads"))
                                         .dropout(dropout)
                                         .bias(flag("bias"))
                                         .add_bias_kv(flag("add_bias_kv"))
                                         .add_zero_attn(flag("add_zero_attn"))
                                         .batch_first(flag("batch_first")));
    const bool weights = flag("need_weights");
    return {attention.ptr(), [=](Tensors& x) mutable {
              return list_of(attention->forward(x[0], x[0], x[0], x.size() > 1 ? x[1] : at::Tensor(), weights));
            }};
  }
  const auto layer =
      nn::TransformerLayerOptions(options.at("embed"), options.at("heads"))
          .dim_feedforward(options.at("hidden"))
          .dropout(dropout)
          .batch_first(flag("batch_first"))
          .norm_first(flag("norm_first"))
          .activation(flag("gelu") ? torch::nn::activation_t(torch::kGELU) : torch::nn::activation_t(torch::kReLU));
  nn::TransformerEncoder encoder(nn::TransformerEncoderLayer(layer), options.at("layers"));
  return {encoder.ptr(),
          [=](Tensors& x) mutable { return list_of(encoder->forward(x[0], {}, x.size() > 1 ? x[1] : at::Tensor())); }};
}

void add_drop_ins(Subjects& subjects) {
  add_sequence_library<Ours>(subjects, "ddp ");
  add_batch_first_attention(subjects);
  add_batch_first_transformers(subjects);
  add_frozen(subjects);
  add_in_containers(subjects);
  add_weight_norms(subjects);
  add_spectral_norms(subjects);
}

}  // namespace ddp::test

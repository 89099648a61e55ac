// The net of a description, as net.py builds it in Python: the same names, order and operators.
#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <nlohmann/json.hpp>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/modules/rnn.h>
#include <torch/nn/modules/transformerlayer.h>
#include <torch/utils.h>

#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "ddprun/recompute/recompute.h"

namespace conformance {

using Json = nlohmann::json;
using Function = std::function<torch::Tensor(const torch::Tensor&)>;

inline c10::ScalarType dtype_named(const std::string& name) {
  if (name == "float16") return torch::kHalf;
  if (name == "bfloat16") return torch::kBFloat16;
  return name == "float64" ? torch::kDouble : torch::kFloat;
}

// torch::nn::Linear with the operator that Python's calls: LibTorch's class multiplies by a transposed weight instead.
struct DenseImpl : torch::nn::Module {
  DenseImpl(int64_t width, int64_t out, bool has_bias) {
    weight = register_parameter("weight", torch::zeros({out, width}));
    if (has_bias) bias = register_parameter("bias", torch::zeros({out}));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return has_bias() ? at::linear(x, weight, bias) : at::linear(x, weight);
  }
  bool has_bias() const { return bias.defined(); }
  torch::Tensor weight;
  torch::Tensor bias;
};
TORCH_MODULE(Dense);

// Torch's named_parameters() repeats what is shared, Python's does not.
inline std::vector<std::pair<std::string, torch::Tensor>> parameters_once(const torch::nn::Module& net) {
  std::vector<std::pair<std::string, torch::Tensor>> result;
  std::set<const c10::TensorImpl*> seen;
  for (const auto& item : net.named_parameters()) {
    if (seen.insert(item.value().unsafeGetTensorImpl()).second) result.emplace_back(item.key(), item.value());
  }
  return result;
}

class NetImpl : public torch::nn::Module {
 public:
  explicit NetImpl(const Json& layers) : run_(sequence(layers)) {}

  torch::Tensor forward(const torch::Tensor& x) { return run_(x); }

  int64_t turn = 0;  // chooses among branches

 private:
  Function sequence(const Json& layers) {
    std::vector<Function> steps;
    for (const Json& layer : layers) steps.push_back(step(layer));
    return [steps](torch::Tensor x) {
      for (const Function& each : steps) x = each(x);
      return x;
    };
  }

  Function step(const Json& layer) {
    const std::string op = layer["op"];
    if (const Function plain = function_named(op)) return plain;
    if (const Function recurrent = recurrent_layer(op, layer)) return recurrent;
    if (const Function normalising = norm(op, layer)) return normalising;
    if (const Function composed = composed_layer(op, layer)) return composed;
    if (const Function looked_up = table(op, layer)) return looked_up;
    return module(op, layer);
  }

  static Function function_named(const std::string& op) {
    static const std::map<std::string, Function> all{
        {"relu", [](const torch::Tensor& x) { return at::relu(x); }},
        {"relu_", [](torch::Tensor x) { return at::relu_(x); }},
        {"tanh", [](const torch::Tensor& x) { return at::tanh(x); }},
        {"sigmoid", [](const torch::Tensor& x) { return at::sigmoid(x); }},
        {"gelu", [](const torch::Tensor& x) { return at::gelu(x); }},
        {"silu", [](const torch::Tensor& x) { return at::silu(x); }},
        {"softplus", [](const torch::Tensor& x) { return at::softplus(x); }},
        {"leaky_relu", [](const torch::Tensor& x) { return at::leaky_relu(x); }},
        {"max_pool", [](const torch::Tensor& x) { return at::max_pool2d(x, 2); }},
        {"avg_pool", [](const torch::Tensor& x) { return at::avg_pool2d(x, 2); }},
        {"global_pool",
         [](const torch::Tensor& x) {
           return at::adaptive_avg_pool2d(x, {1, 1}).flatten(1);
         }},
        {"mean_time", [](const torch::Tensor& x) { return x.mean(1); }},
        {"last_time", [](const torch::Tensor& x) { return x.select(1, -1); }}};
    const auto found = all.find(op);
    return found == all.end() ? nullptr : found->second;
  }

  template <typename Holder>
  Holder keep(const Json& layer, Holder module) {
    const std::string name = layer["name"];
    register_module(name, module);
    calls_[name] = [module](const torch::Tensor& x) mutable { return module(x); };
    modules_[name] = module.ptr();
    return module;
  }

  template <typename Holder, typename Options>
  Function recurrent(const Json& layer) {
    Holder module = keep_recurrent(layer, Holder(Options(layer["width"], layer["hidden"])
                                                     .num_layers(layer["depth"])
                                                     .bidirectional(layer["both"])
                                                     .batch_first(true)));
    return [module](const torch::Tensor& x) mutable { return std::get<0>(module(x)); };
  }
  template <typename Holder>
  Holder keep_recurrent(const Json& layer, Holder module) {
    return register_module(layer["name"].get<std::string>(), module);
  }
  Function recurrent_layer(const std::string& op, const Json& layer) {
    if (op == "lstm") return recurrent<torch::nn::LSTM, torch::nn::LSTMOptions>(layer);
    if (op == "gru") return recurrent<torch::nn::GRU, torch::nn::GRUOptions>(layer);
    if (op == "rnn") return recurrent<torch::nn::RNN, torch::nn::RNNOptions>(layer);
    return nullptr;
  }

  Function norm(const std::string& op, const Json& layer) {
    if (op == "layer_norm") {
      return called(keep(layer, torch::nn::LayerNorm(torch::nn::LayerNormOptions({layer["width"].get<int64_t>()}))));
    }
    if (op == "group_norm") {
      return called(keep(layer, torch::nn::GroupNorm(torch::nn::GroupNormOptions(layer["groups"], layer["width"]))));
    }
    if (op != "batch_norm1d" && op != "batch_norm2d") return nullptr;
    torch::nn::BatchNormOptions options(layer["width"].get<int64_t>());
    options.affine(layer["affine"]).track_running_stats(layer["track"]);
    options.momentum(layer["momentum"].is_null() ? std::nullopt
                                                 : std::optional<double>(layer["momentum"].get<double>()));
    return op == "batch_norm1d" ? called(keep(layer, torch::nn::BatchNorm1d(options)))
                                : called(keep(layer, torch::nn::BatchNorm2d(options)));
  }

  template <typename Holder>
  static Function called(Holder module) {
    return [module](const torch::Tensor& x) mutable { return module(x); };
  }

  Function composed_layer(const std::string& op, const Json& layer) {
    if (op == "residual") {
      return [inner = sequence(layer["layers"])](const torch::Tensor& x) {
        const torch::Tensor y = inner(x);
        return x + y;
      };
    }
    if (op == "region") {
      ddp::RecomputeOptions options{.early_stop = layer["early_stop"].get<bool>()};
      for (const std::string name : layer["save"]) options.must_save.push_back("aten::" + name);
      return [inner = sequence(layer["layers"]), options](const torch::Tensor& x) {
        return ddp::checkpoint(options, inner, x);
      };
    }
    if (op == "unused") {
      sequence(layer["layers"]);
      return [](const torch::Tensor& x) { return x; };
    }
    if (op == "branches") {
      std::vector<Function> branches;
      for (const Json& branch : layer["branches"]) branches.push_back(sequence(branch));
      return
          [this, branches](const torch::Tensor& x) { return branches[static_cast<size_t>(turn) % branches.size()](x); };
    }
    if (op == "cast") return cast(layer);
    if (op == "dropout") {
      return [this, p = layer["p"].get<double>()](const torch::Tensor& x) { return at::dropout(x, p, is_training()); };
    }
    return nullptr;
  }

  Function cast(const Json& layer) {
    std::set<std::string> before;
    for (const auto& child : named_children()) before.insert(child.key());
    const Function inner = sequence(layer["layers"]);
    const c10::ScalarType dtype = dtype_named(layer["dtype"]);
    for (const auto& child : named_children()) {
      if (!before.contains(child.key())) child.value()->to(dtype);
    }
    return [inner, dtype](const torch::Tensor& x) { return inner(x.to(dtype)).to(torch::kFloat); };
  }

  Function table(const std::string& op, const Json& layer) {
    if (op == "embedding") {
      torch::nn::EmbeddingOptions options(layer["words"], layer["width"]);
      if (!layer["padding"].is_null()) options.padding_idx(layer["padding"].get<int64_t>());
      return called(keep(layer, torch::nn::Embedding(options.sparse(layer["sparse"]))));
    }
    if (op == "decode") {
      const auto embedding = std::dynamic_pointer_cast<torch::nn::EmbeddingImpl>(modules_.at(layer["layer"]));
      return [embedding](const torch::Tensor& x) { return at::linear(x, embedding->weight); };
    }
    if (op != "embedding_bag") return nullptr;
    torch::nn::EmbeddingBagOptions options(layer["words"], layer["width"]);
    if (layer["mode"] == "sum") options.mode(torch::kSum);
    if (layer["mode"] == "mean") options.mode(torch::kMean);
    if (layer["mode"] == "max") options.mode(torch::kMax);
    auto bag = register_module(layer["name"].get<std::string>(), torch::nn::EmbeddingBag(options));
    return [bag](const torch::Tensor& x) mutable { return bag->forward(x); };
  }

  Function module(const std::string& op, const Json& layer) {
    const std::string name = layer["name"];
    if (op == "linear") return called(keep(layer, Dense(layer["width"], layer["out"], layer["bias"])));
    if (op == "torch_linear") {
      return called(
          keep(layer, torch::nn::Linear(torch::nn::LinearOptions(layer["width"], layer["out"]).bias(layer["bias"]))));
    }
    if (op == "conv") {
      const auto options = torch::nn::Conv2dOptions(layer["width"], layer["out"], layer["kernel"].get<int64_t>())
                               .stride(layer["stride"].get<int64_t>())
                               .padding(layer["padding"].get<int64_t>());
      return called(keep(
          layer, torch::nn::Conv2d(torch::nn::Conv2dOptions(options).groups(layer["groups"]).bias(layer["bias"]))));
    }
    if (op == "conv1d") {
      const int64_t kernel = layer["kernel"];
      auto conv = keep(
          layer, torch::nn::Conv1d(torch::nn::Conv1dOptions(layer["width"], layer["out"], kernel).padding(kernel / 2)));
      return [conv](const torch::Tensor& x) mutable { return conv(x.transpose(1, 2)).transpose(1, 2); };
    }
    if (op == "scale") {
      const torch::Tensor parameter =
          register_parameter(name, torch::zeros(layer["shape"].get<std::vector<int64_t>>()));
      return [parameter](const torch::Tensor& x) { return x * parameter; };
    }
    if (op == "again") {
      if (layer["alias"].get<bool>()) register_module(name, modules_.at(layer["layer"]));
      return calls_.at(layer["layer"]);
    }
    if (op == "attention") {
      auto attention = register_module(
          name, torch::nn::MultiheadAttention(torch::nn::MultiheadAttentionOptions(layer["width"], layer["heads"])));
      return [attention](const torch::Tensor& x) mutable { return std::get<0>(attention->forward(x, x, x)); };
    }
    if (op == "encoder_layer") {
      auto options = torch::nn::TransformerEncoderLayerOptions(layer["width"], layer["heads"]);
      auto encoder = register_module(
          name, torch::nn::TransformerEncoderLayer(options.dim_feedforward(layer["hidden"]).dropout(layer["p"])));
      return [encoder](const torch::Tensor& x) mutable { return encoder->forward(x); };
    }
    throw std::invalid_argument("conformance_program.cpp knows no layer '" + op + "'");
  }

  std::map<std::string, Function> calls_;
  std::map<std::string, std::shared_ptr<torch::nn::Module>> modules_;
  Function run_;
};
TORCH_MODULE(Net);

inline at::Generator generator(int64_t seed) {
  return at::detail::createCPUGenerator(static_cast<uint64_t>(seed));
}

inline void initialise(const torch::nn::Module& net, int64_t seed) {
  const torch::NoGradGuard no_grad;
  for (auto& [name, parameter] : parameters_once(net)) {
    torch::Tensor values = torch::rand(parameter.sizes(), generator(seed++)) * 2 - 1;
    if (parameter.dim() > 1) {
      values = values / std::sqrt(static_cast<double>(parameter.numel() / parameter.size(0)));
    } else {
      values = name.ends_with("bias") ? values * 0.1 : values * 0.1 + 1;
    }
    parameter.copy_(values);
  }
}

}  // namespace conformance

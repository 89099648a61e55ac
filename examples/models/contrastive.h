// A small convolutional net for pictures of 32 pixels with SimCLR's projection head (Chen et al. 2020). Its norms are
// group norms, which do not depend on the other samples of a batch, hence not on how samples are divided among ranks.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/pimpl.h>

#include <cstdint>

namespace models {

/// Input float (N, 3, 32, 32). The representation is what the encoder gives, the embeddings that the loss compares are
/// the projection head's.
struct ContrastiveNetImpl : torch::nn::Module {
  static constexpr int64_t kFeatures = 128, kEmbedding = 32;

  ContrastiveNetImpl() {
    namespace nn = torch::nn;
    const auto halving = [](int64_t in, int64_t out) {
      return nn::Conv2d(nn::Conv2dOptions(in, out, 3).stride(2).padding(1).bias(false));
    };
    const auto norm = [](int64_t channels) { return nn::GroupNorm(nn::GroupNormOptions(8, channels)); };
    encoder = register_module("encoder", nn::Sequential(halving(3, 32), norm(32), nn::ReLU(), halving(32, 64), norm(64),
                                                        nn::ReLU(), halving(64, kFeatures), norm(kFeatures)));
    projector = register_module(
        "projector", nn::Sequential(nn::Linear(kFeatures, kFeatures), nn::ReLU(), nn::Linear(kFeatures, kEmbedding)));
  }

  /// (N, kFeatures)
  torch::Tensor features(const torch::Tensor& images) { return encoder->forward(images).relu().mean({2, 3}); }
  /// (N, kEmbedding)
  torch::Tensor forward(const torch::Tensor& images) { return projector->forward(features(images)); }

  torch::nn::Sequential encoder{nullptr}, projector{nullptr};
};
TORCH_MODULE(ContrastiveNet);

}  // namespace models

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

  // One layer after the other: the arguments of one call may be made in any order, and initial weights are drawn in it.
  ContrastiveNetImpl() {
    namespace nn = torch::nn;
    int64_t channels = 3;
    for (const int64_t wider : {int64_t{32}, int64_t{64}, kFeatures}) {
      encoder->push_back(nn::Conv2d(nn::Conv2dOptions(channels, wider, 3).stride(2).padding(1).bias(false)));
      encoder->push_back(nn::GroupNorm(nn::GroupNormOptions(8, wider)));
      encoder->push_back(nn::ReLU());
      channels = wider;
    }
    projector->push_back(nn::Linear(kFeatures, kFeatures));
    projector->push_back(nn::ReLU());
    projector->push_back(nn::Linear(kFeatures, kEmbedding));
    register_module("encoder", encoder);
    register_module("projector", projector);
  }

  /// (N, kFeatures)
  torch::Tensor features(const torch::Tensor& images) { return encoder->forward(images).mean({2, 3}); }
  /// (N, kEmbedding)
  torch::Tensor forward(const torch::Tensor& images) { return projector->forward(features(images)); }

  torch::nn::Sequential encoder, projector;
};
TORCH_MODULE(ContrastiveNet);

}  // namespace models

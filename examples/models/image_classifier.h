// What the nets for pictures have in common, so that a program can let its user choose one by name.
#pragma once

#include <torch/nn/functional/loss.h>
#include <torch/nn/module.h>
#include <torch/types.h>

#include <cstdint>

namespace models {

/// Input float (N, 3, H, W), output logits (N, classes). A net with auxiliary classifiers gives (N, 1 + auxiliary ones,
/// classes) while it trains, the main one's first.
class ImageClassifier : public torch::nn::Module {
 public:
  virtual torch::Tensor forward(torch::Tensor images) = 0;
};

/// The mean cross-entropy of a net's output, (N, classes) or with auxiliary classifiers, and class indices int64 (N);
/// of auxiliary ones as much as the papers and torchvision take, 0.3 of GoogLeNet's two and 0.4 of Inception v3's.
inline torch::Tensor classification_loss(const torch::Tensor& output, const torch::Tensor& target) {
  const auto logits = output.to(torch::kFloat);
  if (logits.dim() == 2) return torch::nn::functional::cross_entropy(logits, target);
  auto loss = torch::nn::functional::cross_entropy(logits.select(1, 0), target);
  const double part = logits.size(1) == 2 ? 0.4 : 0.3;
  for (int64_t i = 1; i < logits.size(1); ++i) {
    loss = loss + part * torch::nn::functional::cross_entropy(logits.select(1, i), target);
  }
  return loss;
}

}  // namespace models

// What the nets for pictures have in common, so that a program can let its user choose one by name.
#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

namespace models {

/// Input float (N, 3, H, W), output logits (N, classes). A net with auxiliary classifiers gives (N, 1 + auxiliary ones,
/// classes) while it trains, the main one's first.
class ImageClassifier : public torch::nn::Module {
 public:
  virtual torch::Tensor forward(torch::Tensor images) = 0;
};

}  // namespace models

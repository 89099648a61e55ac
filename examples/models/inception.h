// Inception v3 (Szegedy et al., "Rethinking the Inception Architecture for Computer Vision", CVPR 2016) with the
// parameter names of torchvision's inception_v3, so that its weights load as they are.
#pragma once

#include <torch/nn/init.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <cstdint>

#include "examples/models/conv_norm.h"
#include "examples/models/image_classifier.h"
#include "examples/models/inception_blocks.h"

namespace models {

struct InceptionV3Options {
  int64_t num_classes = 1000;
  bool aux_logits = true;        ///< the auxiliary classifier, used in training
  bool transform_input = false;  ///< true for torchvision's trained weights, as inception_v3(weights=…) sets it
  double dropout = 0.5;
};

/// Input float (N, 3, H, W) of at least 75 pixels, 299 in the paper, output logits (N, num_classes); while it trains
/// with the auxiliary classifier (N, 2, num_classes), the main one's first.
class InceptionV3Impl : public ImageClassifier {
 public:
  explicit InceptionV3Impl(const InceptionV3Options& options = {}) : options_(options) {
    using namespace inception;
    conv_1a = register_module("Conv2d_1a_3x3", ConvNorm(3, 32, ConvShape{.kernel = 3, .stride = 2}));
    conv_2a = register_module("Conv2d_2a_3x3", ConvNorm(32, 32, ConvShape{.kernel = 3}));
    conv_2b = register_module("Conv2d_2b_3x3", ConvNorm(32, 64, ConvShape{.kernel = 3, .padding = 1}));
    conv_3b = register_module("Conv2d_3b_1x1", ConvNorm(64, 80));
    conv_4a = register_module("Conv2d_4a_3x3", ConvNorm(80, 192, ConvShape{.kernel = 3}));
    mixed_5b = register_module("Mixed_5b", A(192, 32));
    mixed_5c = register_module("Mixed_5c", A(256, 64));
    mixed_5d = register_module("Mixed_5d", A(288, 64));
    mixed_6a = register_module("Mixed_6a", B(288));
    mixed_6b = register_module("Mixed_6b", C(768, 128));
    mixed_6c = register_module("Mixed_6c", C(768, 160));
    mixed_6d = register_module("Mixed_6d", C(768, 160));
    mixed_6e = register_module("Mixed_6e", C(768, 192));
    if (options.aux_logits) aux = register_module("AuxLogits", Aux(768, options.num_classes));
    mixed_7a = register_module("Mixed_7a", D(768));
    mixed_7b = register_module("Mixed_7b", E(1280));
    mixed_7c = register_module("Mixed_7c", E(2048));
    dropout = register_module("dropout", torch::nn::Dropout(options.dropout));
    fc = register_module("fc", torch::nn::Linear(2048, options.num_classes));
    initialize_weights(*this, 0.1);
    if (aux) aux->initialize();
  }

  torch::Tensor forward(torch::Tensor x) override {
    if (options_.transform_input) x = from_imagenet_normalization(x);
    x = torch::max_pool2d(conv_2b(conv_2a(conv_1a(x))), 3, 2);
    x = torch::max_pool2d(conv_4a(conv_3b(x)), 3, 2);
    x = mixed_5d(mixed_5c(mixed_5b(x)));
    x = mixed_6e(mixed_6d(mixed_6c(mixed_6b(mixed_6a(x)))));
    const auto auxiliary = is_training() && aux ? aux(x) : torch::Tensor();
    x = mixed_7c(mixed_7b(mixed_7a(x)));
    x = fc(dropout(x.mean({2, 3})));
    return auxiliary.defined() ? torch::stack({x, auxiliary}, 1) : x;
  }

  ConvNorm conv_1a{nullptr}, conv_2a{nullptr}, conv_2b{nullptr}, conv_3b{nullptr}, conv_4a{nullptr};
  inception::A mixed_5b{nullptr}, mixed_5c{nullptr}, mixed_5d{nullptr};
  inception::B mixed_6a{nullptr};
  inception::C mixed_6b{nullptr}, mixed_6c{nullptr}, mixed_6d{nullptr}, mixed_6e{nullptr};
  inception::Aux aux{nullptr};
  inception::D mixed_7a{nullptr};
  inception::E mixed_7b{nullptr}, mixed_7c{nullptr};
  torch::nn::Dropout dropout{nullptr};
  torch::nn::Linear fc{nullptr};

 private:
  InceptionV3Options options_;
};
TORCH_MODULE(InceptionV3);

}  // namespace models

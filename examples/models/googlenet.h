// GoogLeNet (Szegedy et al., "Going Deeper with Convolutions", CVPR 2015) with the parameter names of torchvision's
// googlenet, so that its weights load as they are. As there, it has batch norm, and 3x3 where the paper has 5x5.
#pragma once

#include <torch/nn/functional/pooling.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/pooling.h>
#include <torch/nn/pimpl.h>

#include <array>
#include <cstdint>
#include <string>

#include "examples/models/conv_norm.h"
#include "examples/models/image_classifier.h"

namespace models {

struct GoogLeNetOptions {
  int64_t num_classes = 1000;
  bool aux_logits = true;        ///< the two auxiliary classifiers, used in training
  bool transform_input = false;  ///< true for torchvision's trained weights, as googlenet(weights=…) sets it
  double dropout = 0.2;
  double aux_dropout = 0.7;
};

namespace googlenet {

inline torch::nn::MaxPool2d pool(int64_t kernel, int64_t stride, int64_t padding = 0) {
  return torch::nn::MaxPool2d(torch::nn::MaxPool2dOptions(kernel).stride(stride).padding(padding).ceil_mode(true));
}

/// Four branches side by side.
class InceptionImpl : public ConvNormBlock {
 public:
  /// Channels: of the first branch; of the second, reduced and out; of the third; of the pooling's.
  InceptionImpl(int64_t in, const std::array<int64_t, 6>& c)
      : branch1(add("branch1", in, c[0])),
        branch2(register_module("branch2", pair(in, c[1], c[2]))),
        branch3(register_module("branch3", pair(in, c[3], c[4]))),
        branch4(register_module("branch4", torch::nn::Sequential(pool(3, 1, 1), ConvNorm(in, c[5])))) {}

  torch::Tensor forward(const torch::Tensor& x) {
    return torch::cat({branch1(x), branch2->forward(x), branch3->forward(x), branch4->forward(x)}, 1);
  }

  ConvNorm branch1;
  torch::nn::Sequential branch2, branch3, branch4;

 private:
  static torch::nn::Sequential pair(int64_t in, int64_t reduced, int64_t out) {
    return torch::nn::Sequential(ConvNorm(in, reduced), ConvNorm(reduced, out, ConvShape{.kernel = 3, .padding = 1}));
  }
};
TORCH_MODULE(Inception);

class AuxImpl : public ConvNormBlock {
 public:
  AuxImpl(int64_t in, const GoogLeNetOptions& options)
      : conv(add("conv", in, 128)),
        fc1(register_module("fc1", torch::nn::Linear(2048, 1024))),
        fc2(register_module("fc2", torch::nn::Linear(1024, options.num_classes))),
        dropout(register_module("dropout", torch::nn::Dropout(options.aux_dropout))) {}

  torch::Tensor forward(const torch::Tensor& x) {
    const auto y = conv(torch::adaptive_avg_pool2d(x, {4, 4})).flatten(1);
    return fc2(dropout(torch::relu(fc1(y))));
  }

  ConvNorm conv;
  torch::nn::Linear fc1, fc2;
  torch::nn::Dropout dropout;
};
TORCH_MODULE(Aux);

}  // namespace googlenet

/// Input float (N, 3, H, W) of at least 15 pixels, output logits (N, num_classes); while it trains with auxiliary
/// classifiers (N, 3, num_classes), of the main one, of aux2 and of aux1.
class GoogLeNetImpl : public ImageClassifier {
 public:
  explicit GoogLeNetImpl(const GoogLeNetOptions& options = {})
      : options_(options),
        conv1(register_module("conv1", ConvNorm(3, 64, ConvShape{.kernel = 7, .stride = 2, .padding = 3}))),
        conv2(register_module("conv2", ConvNorm(64, 64))),
        conv3(register_module("conv3", ConvNorm(64, 192, ConvShape{.kernel = 3, .padding = 1}))),
        inception3a(add("inception3a", 192, {64, 96, 128, 16, 32, 32})),
        inception3b(add("inception3b", 256, {128, 128, 192, 32, 96, 64})),
        inception4a(add("inception4a", 480, {192, 96, 208, 16, 48, 64})),
        inception4b(add("inception4b", 512, {160, 112, 224, 24, 64, 64})),
        inception4c(add("inception4c", 512, {128, 128, 256, 24, 64, 64})),
        inception4d(add("inception4d", 512, {112, 144, 288, 32, 64, 64})),
        inception4e(add("inception4e", 528, {256, 160, 320, 32, 128, 128})),
        inception5a(add("inception5a", 832, {256, 160, 320, 32, 128, 128})),
        inception5b(add("inception5b", 832, {384, 192, 384, 48, 128, 128})),
        dropout(register_module("dropout", torch::nn::Dropout(options.dropout))),
        fc(nullptr) {
    if (options.aux_logits) {
      aux1 = register_module("aux1", googlenet::Aux(512, options));
      aux2 = register_module("aux2", googlenet::Aux(528, options));
    }
    fc = register_module("fc", torch::nn::Linear(1024, options.num_classes));
    initialize_weights(*this, 0.01);
  }

  torch::Tensor forward(torch::Tensor x) override {
    const bool has_aux = is_training() && options_.aux_logits;
    if (options_.transform_input) x = from_imagenet_normalization(x);
    x = halve(conv3(conv2(halve(conv1(x)))));
    x = inception4a(halve(inception3b(inception3a(x))));
    const auto first = has_aux ? aux1(x) : torch::Tensor();
    x = inception4d(inception4c(inception4b(x)));
    const auto second = has_aux ? aux2(x) : torch::Tensor();
    x = halve(inception4e(x), 2);
    x = fc(dropout(inception5b(inception5a(x)).mean({2, 3})));
    return has_aux ? torch::stack({x, second, first}, 1) : x;
  }

 private:
  googlenet::Inception add(const std::string& name, int64_t in, const std::array<int64_t, 6>& channels) {
    return register_module(name, googlenet::Inception(in, channels));
  }
  static torch::Tensor halve(const torch::Tensor& x, int64_t kernel = 3) {
    return torch::max_pool2d(x, kernel, 2, 0, 1, /*ceil_mode=*/true);
  }

  GoogLeNetOptions options_;

 public:
  ConvNorm conv1, conv2, conv3;
  googlenet::Inception inception3a, inception3b, inception4a, inception4b, inception4c, inception4d, inception4e,
      inception5a, inception5b;
  googlenet::Aux aux1{nullptr}, aux2{nullptr};
  torch::nn::Dropout dropout;
  torch::nn::Linear fc;
};
TORCH_MODULE(GoogLeNet);

}  // namespace models

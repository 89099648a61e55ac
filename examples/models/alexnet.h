// AlexNet (Krizhevsky, "One weird trick for parallelizing convolutional neural networks", 2014) with the parameter
// names of torchvision's alexnet, so that its weights load as they are.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/pooling.h>
#include <torch/nn/pimpl.h>

#include <cstdint>

#include "examples/models/image_classifier.h"

namespace models {

struct AlexNetOptions {
  int64_t num_classes = 1000;
  double dropout = 0.5;
};

/// Input float (N, 3, H, W) of at least 63 pixels, output logits (N, num_classes).
class AlexNetImpl : public ImageClassifier {
 public:
  explicit AlexNetImpl(const AlexNetOptions& options = {})
      : features(register_module(
            "features", torch::nn::Sequential(conv(3, 64, 11, 2, 4), relu(), pool(), conv(64, 192, 5, 2), relu(),
                                              pool(), conv(192, 384, 3, 1), relu(), conv(384, 256, 3, 1), relu(),
                                              conv(256, 256, 3, 1), relu(), pool()))),
        avgpool(torch::nn::AdaptiveAvgPool2dOptions({6, 6})),
        classifier(register_module(
            "classifier",
            torch::nn::Sequential(torch::nn::Dropout(options.dropout), torch::nn::Linear(256 * 6 * 6, 4096), relu(),
                                  torch::nn::Dropout(options.dropout), torch::nn::Linear(4096, 4096), relu(),
                                  torch::nn::Linear(4096, options.num_classes)))) {}

  torch::Tensor forward(torch::Tensor images) override {
    return classifier->forward(avgpool(features->forward(images)).flatten(1));
  }

  torch::nn::Sequential features;
  torch::nn::AdaptiveAvgPool2d avgpool;
  torch::nn::Sequential classifier;

 private:
  static torch::nn::Conv2d conv(int64_t in, int64_t out, int64_t kernel, int64_t padding, int64_t stride = 1) {
    return torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, kernel).stride(stride).padding(padding));
  }
  static torch::nn::ReLU relu() { return torch::nn::ReLU(torch::nn::ReLUOptions(/*inplace=*/true)); }
  static torch::nn::MaxPool2d pool() { return torch::nn::MaxPool2d(torch::nn::MaxPool2dOptions(3).stride(2)); }
};
TORCH_MODULE(AlexNet);

}  // namespace models

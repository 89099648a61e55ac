// VGG-16 (Simonyan and Zisserman, "Very Deep Convolutional Networks for Large-Scale Image Recognition", ICLR 2015) with
// the parameter names of torchvision's vgg16, so that its weights load as they are.
#pragma once

#include <torch/nn/init.h>
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

struct Vgg16Options {
  int64_t num_classes = 1000;
  double dropout = 0.5;
};

/// Input float (N, 3, H, W) of at least 32 pixels, output logits (N, num_classes).
class Vgg16Impl : public ImageClassifier {
 public:
  explicit Vgg16Impl(const Vgg16Options& options = {})
      : features(register_module("features", make_features())),
        avgpool(torch::nn::AdaptiveAvgPool2dOptions({7, 7})),
        classifier(register_module(
            "classifier",
            torch::nn::Sequential(torch::nn::Linear(512 * 7 * 7, 4096), relu(), torch::nn::Dropout(options.dropout),
                                  torch::nn::Linear(4096, 4096), relu(), torch::nn::Dropout(options.dropout),
                                  torch::nn::Linear(4096, options.num_classes)))) {
    initialize();
  }

  torch::Tensor forward(torch::Tensor images) override {
    return classifier->forward(avgpool(features->forward(images)).flatten(1));
  }

  torch::nn::Sequential features;
  torch::nn::AdaptiveAvgPool2d avgpool;
  torch::nn::Sequential classifier;

 private:
  static torch::nn::ReLU relu() { return torch::nn::ReLU(torch::nn::ReLUOptions(/*inplace=*/true)); }

  // The paper's configuration D; 0 is where the picture is halved.
  static torch::nn::Sequential make_features() {
    torch::nn::Sequential layers;
    int64_t in = 3;
    for (const int64_t out : {64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0}) {
      if (out == 0) {
        layers->push_back(torch::nn::MaxPool2d(torch::nn::MaxPool2dOptions(2).stride(2)));
        continue;
      }
      layers->push_back(torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, 3).padding(1)));
      layers->push_back(relu());
      in = out;
    }
    return layers;
  }

  // torchvision's.
  void initialize() {
    for (const auto& module : modules(/*include_self=*/false)) {
      if (auto* convolution = module->as<torch::nn::Conv2d>()) {
        torch::nn::init::kaiming_normal_(convolution->weight, 0, torch::kFanOut, torch::kReLU);
        torch::nn::init::zeros_(convolution->bias);
      } else if (auto* linear = module->as<torch::nn::Linear>()) {
        torch::nn::init::normal_(linear->weight, 0, 0.01);
        torch::nn::init::zeros_(linear->bias);
      }
    }
  }
};
TORCH_MODULE(Vgg16);

}  // namespace models

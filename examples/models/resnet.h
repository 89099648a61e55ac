// ResNet (He et al., "Deep Residual Learning for Image Recognition", CVPR 2016) with the parameter names of
// torchvision's resnet18, resnet34 and resnet50, so that their weights load as they are. As there, a bottleneck's
// stride is in its 3x3 convolution ("ResNet v1.5").
#pragma once

#include <torch/nn/functional/activation.h>
#include <torch/nn/init.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/pooling.h>
#include <torch/nn/pimpl.h>

#include <array>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>

#include "examples/models/image_classifier.h"

namespace models {

namespace detail {

inline torch::nn::Conv2d conv(int64_t in, int64_t out, int64_t kernel, int64_t stride) {
  return torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2).bias(false));
}

/// The shortcut of a block whose input and output differ in shape; empty when they don't.
inline torch::nn::Sequential projection(int64_t in, int64_t out, int64_t stride) {
  if (in == out && stride == 1) return nullptr;
  return torch::nn::Sequential(conv(in, out, 1, stride), torch::nn::BatchNorm2d(out));
}

}  // namespace detail

/// Two 3x3 convolutions; the block of ResNet-18 and -34.
class BasicBlockImpl : public torch::nn::Module {
 public:
  static constexpr int64_t kExpansion = 1;

  BasicBlockImpl(int64_t in, int64_t width, int64_t stride)
      : conv1(register_module("conv1", detail::conv(in, width, 3, stride))),
        bn1(register_module("bn1", torch::nn::BatchNorm2d(width))),
        conv2(register_module("conv2", detail::conv(width, width, 3, 1))),
        bn2(register_module("bn2", torch::nn::BatchNorm2d(width))),
        downsample(detail::projection(in, width * kExpansion, stride)) {
    if (downsample) register_module("downsample", downsample);
  }

  torch::Tensor forward(const torch::Tensor& x) {
    auto y = torch::relu(bn1(conv1(x)));
    y = bn2(conv2(y));
    return torch::relu(y + (downsample ? downsample->forward(x) : x));
  }

  /// The last normalisation of the residual branch.
  torch::nn::BatchNorm2d& last_norm() { return bn2; }

  torch::nn::Conv2d conv1;
  torch::nn::BatchNorm2d bn1;
  torch::nn::Conv2d conv2;
  torch::nn::BatchNorm2d bn2;
  torch::nn::Sequential downsample;
};
TORCH_MODULE(BasicBlock);

/// 1x1, 3x3, 1x1 convolutions; the block of ResNet-50.
class BottleneckImpl : public torch::nn::Module {
 public:
  static constexpr int64_t kExpansion = 4;

  BottleneckImpl(int64_t in, int64_t width, int64_t stride)
      : conv1(register_module("conv1", detail::conv(in, width, 1, 1))),
        bn1(register_module("bn1", torch::nn::BatchNorm2d(width))),
        conv2(register_module("conv2", detail::conv(width, width, 3, stride))),
        bn2(register_module("bn2", torch::nn::BatchNorm2d(width))),
        conv3(register_module("conv3", detail::conv(width, width * kExpansion, 1, 1))),
        bn3(register_module("bn3", torch::nn::BatchNorm2d(width * kExpansion))),
        downsample(detail::projection(in, width * kExpansion, stride)) {
    if (downsample) register_module("downsample", downsample);
  }

  torch::Tensor forward(const torch::Tensor& x) {
    auto y = torch::relu(bn1(conv1(x)));
    y = torch::relu(bn2(conv2(y)));
    y = bn3(conv3(y));
    return torch::relu(y + (downsample ? downsample->forward(x) : x));
  }

  /// The last normalisation of the residual branch.
  torch::nn::BatchNorm2d& last_norm() { return bn3; }

  torch::nn::Conv2d conv1;
  torch::nn::BatchNorm2d bn1;
  torch::nn::Conv2d conv2;
  torch::nn::BatchNorm2d bn2;
  torch::nn::Conv2d conv3;
  torch::nn::BatchNorm2d bn3;
  torch::nn::Sequential downsample;
};
TORCH_MODULE(Bottleneck);

struct ResNetOptions {
  int64_t num_classes = 1000;
  /// Start every residual branch at zero (Goyal et al., "Accurate, Large Minibatch SGD", 2017).
  bool zero_init_residual = false;
};

/// Input float (N, 3, H, W), output logits (N, num_classes). `Block` is the holder of one of the blocks above.
template <typename Block>
class ResNetImpl : public ImageClassifier {
 public:
  ResNetImpl(const std::array<int64_t, 4>& blocks, const ResNetOptions& options)
      : conv1(register_module("conv1",
                              torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 64, 7).stride(2).padding(3).bias(false)))),
        bn1(register_module("bn1", torch::nn::BatchNorm2d(64))),
        maxpool(torch::nn::MaxPool2dOptions(3).stride(2).padding(1)),
        layer1(register_module("layer1", make_layer(64, 64, blocks[0], 1))),
        layer2(register_module("layer2", make_layer(64 * kExpansion, 128, blocks[1], 2))),
        layer3(register_module("layer3", make_layer(128 * kExpansion, 256, blocks[2], 2))),
        layer4(register_module("layer4", make_layer(256 * kExpansion, 512, blocks[3], 2))),
        fc(register_module("fc", torch::nn::Linear(512 * kExpansion, options.num_classes))) {
    initialize(options.zero_init_residual);
  }

  torch::Tensor forward(torch::Tensor x) override {
    x = maxpool(torch::relu(bn1(conv1(x))));
    x = layer1->forward(x);
    x = layer2->forward(x);
    x = layer3->forward(x);
    x = layer4->forward(x);
    return fc(x.mean({2, 3}));
  }

  torch::nn::Conv2d conv1;
  torch::nn::BatchNorm2d bn1;
  torch::nn::MaxPool2d maxpool;
  torch::nn::Sequential layer1, layer2, layer3, layer4;
  torch::nn::Linear fc;

 private:
  static constexpr int64_t kExpansion = Block::Impl::kExpansion;

  static torch::nn::Sequential make_layer(int64_t in, int64_t width, int64_t blocks, int64_t stride) {
    torch::nn::Sequential layer;
    for (int64_t i = 0; i < blocks; ++i) {
      layer->push_back(Block(in, width, i == 0 ? stride : 1));
      in = width * kExpansion;
    }
    return layer;
  }

  // torchvision's; the paper's section on initialisation is He et al., "Delving Deep into Rectifiers", 2015.
  void initialize(bool zero_init_residual) {
    for (const auto& module : modules(/*include_self=*/false)) {
      if (const auto* convolution = module->as<torch::nn::Conv2d>()) {
        torch::nn::init::kaiming_normal_(convolution->weight, 0, torch::kFanOut, torch::kReLU);
      }
    }
    if (!zero_init_residual) return;
    for (const auto& module : modules(/*include_self=*/false)) {
      if (auto* block = module->as<typename Block::Impl>()) torch::nn::init::zeros_(block->last_norm()->weight);
    }
  }
};

class ResNet18Impl : public ResNetImpl<BasicBlock> {
 public:
  explicit ResNet18Impl(const ResNetOptions& options = {}) : ResNetImpl({2, 2, 2, 2}, options) {}
};
TORCH_MODULE(ResNet18);

class ResNet34Impl : public ResNetImpl<BasicBlock> {
 public:
  explicit ResNet34Impl(const ResNetOptions& options = {}) : ResNetImpl({3, 4, 6, 3}, options) {}
};
TORCH_MODULE(ResNet34);

class ResNet50Impl : public ResNetImpl<Bottleneck> {
 public:
  explicit ResNet50Impl(const ResNetOptions& options = {}) : ResNetImpl({3, 4, 6, 3}, options) {}
};
TORCH_MODULE(ResNet50);

/// "resnet18", "resnet34" or "resnet50". Throws std::invalid_argument for another name.
inline std::shared_ptr<ImageClassifier> make_resnet(const std::string& name, const ResNetOptions& options = {}) {
  if (name == "resnet18") return std::make_shared<ResNet18Impl>(options);
  if (name == "resnet34") return std::make_shared<ResNet34Impl>(options);
  if (name == "resnet50") return std::make_shared<ResNet50Impl>(options);
  throw std::invalid_argument("unknown net '" + name + "': expected resnet18, resnet34 or resnet50");
}

}  // namespace models

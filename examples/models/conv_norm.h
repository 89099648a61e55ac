// Convolution, batch norm and ReLU: what GoogLeNet and Inception v3 are made of, under torchvision's names.
#pragma once

#include <torch/expanding_array.h>
#include <torch/nn/init.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <string>

namespace models {

struct ConvShape {
  torch::ExpandingArray<2> kernel = 1;
  torch::ExpandingArray<2> stride = 1;
  torch::ExpandingArray<2> padding = 0;
};

/// torchvision's BasicConv2d: a convolution without bias, batch norm with epsilon 0.001, ReLU.
class ConvNormImpl : public torch::nn::Module {
 public:
  ConvNormImpl(int64_t in, int64_t out, const ConvShape& shape = {})
      : conv(register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, shape.kernel)
                                                           .stride(shape.stride)
                                                           .padding(shape.padding)
                                                           .bias(false)))),
        bn(register_module("bn", torch::nn::BatchNorm2d(torch::nn::BatchNorm2dOptions(out).eps(0.001)))) {}

  torch::Tensor forward(const torch::Tensor& x) { return bn(conv(x)).relu_(); }

  torch::nn::Conv2d conv;
  torch::nn::BatchNorm2d bn;
};
TORCH_MODULE(ConvNorm);

/// A part of a net that is made of them.
class ConvNormBlock : public torch::nn::Module {
 protected:
  ConvNorm add(const std::string& name, int64_t in, int64_t out, const ConvShape& shape = {}) {
    return register_module(name, ConvNorm(in, out, shape));
  }
};

/// torchvision's initial weights for both nets. (Theirs are cut off at 20 standard deviations and more.)
inline void initialize_weights(torch::nn::Module& net, double stddev) {
  for (const auto& module : net.modules(/*include_self=*/false)) {
    if (auto* convolution = module->as<torch::nn::Conv2d>()) {
      torch::nn::init::normal_(convolution->weight, 0, stddev);
    } else if (auto* linear = module->as<torch::nn::Linear>()) {
      torch::nn::init::normal_(linear->weight, 0, stddev);
    }
  }
}

/// From pictures normalized with ImageNet's means and deviations, as torchvision's data is, to the range [-1, 1] that
/// the weights of the papers' authors expect.
inline torch::Tensor from_imagenet_normalization(const torch::Tensor& images) {
  const auto factors = torch::tensor({0.229 / 0.5, 0.224 / 0.5, 0.225 / 0.5}).to(images).view({1, 3, 1, 1});
  const auto shifts =
      torch::tensor({(0.485 - 0.5) / 0.5, (0.456 - 0.5) / 0.5, (0.406 - 0.5) / 0.5}).to(images).view({1, 3, 1, 1});
  return images * factors + shifts;
}

}  // namespace models

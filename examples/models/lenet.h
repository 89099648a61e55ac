// A LeNet-like network for 32x32 colour images, with the layer names that PyTorch's CIFAR-10 tutorial uses.
#pragma once

#include <torch/nn/functional/activation.h>
#include <torch/nn/functional/pooling.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <cstdint>

namespace models {

/// Input float (N, 3, 32, 32), output logits (N, num_classes).
class LeNetImpl : public torch::nn::Module {
 public:
  explicit LeNetImpl(int64_t num_classes = 10)
      : conv1(register_module("conv1", torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 6, 5)))),
        conv2(register_module("conv2", torch::nn::Conv2d(torch::nn::Conv2dOptions(6, 16, 5)))),
        fc1(register_module("fc1", torch::nn::Linear(16 * 5 * 5, 120))),
        fc2(register_module("fc2", torch::nn::Linear(120, 84))),
        fc3(register_module("fc3", torch::nn::Linear(84, num_classes))) {}

  torch::Tensor forward(torch::Tensor x) {
    namespace F = torch::nn::functional;
    const auto pool = F::MaxPool2dFuncOptions(2).stride(2);
    x = F::max_pool2d(F::relu(conv1(x)), pool);  // (N, 6, 14, 14)
    x = F::max_pool2d(F::relu(conv2(x)), pool);  // (N, 16, 5, 5)
    x = x.flatten(1);
    x = F::relu(fc1(x));
    x = F::relu(fc2(x));
    return fc3(x);
  }

  torch::nn::Conv2d conv1, conv2;
  torch::nn::Linear fc1, fc2, fc3;
};
TORCH_MODULE(LeNet);

}  // namespace models

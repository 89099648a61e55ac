// A sequence of linear layers of equal width.
#pragma once

#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <string>
#include <vector>

namespace bench {

struct LayersImpl : torch::nn::Module {
  LayersImpl(int count, int64_t width) {
    for (int i = 0; i < count; ++i)
      layers.push_back(register_module("layer" + std::to_string(i), torch::nn::Linear(width, width)));
  }
  torch::Tensor forward(torch::Tensor x) {
    for (auto& layer : layers) x = layer(x);
    return x;
  }
  std::vector<torch::nn::Linear> layers;
};
TORCH_MODULE(Layers);

}  // namespace bench

// The layers of an encoder or decoder.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/container/modulelist.h>

#include <cstdint>
#include <stdexcept>

#include "base/rank_prefix.h"

namespace ddp::nn::detail {

/// While it lives, numbers may be drawn from the CPU's default generator; with its end the generator has the state from
/// before. Copies of modules need it: LibTorch's clone() draws values for parameters that it then overwrites.
class GeneratorGuard {
 public:
  GeneratorGuard();
  ~GeneratorGuard();
  GeneratorGuard(const GeneratorGuard&) = delete;
  GeneratorGuard& operator=(const GeneratorGuard&) = delete;

 private:
  at::Generator generator_;
  at::Tensor state_;
};

/// `count` copies of `layer`; random numbers stay as they are.
template <typename Layer>
torch::nn::ModuleList copies_of(const Layer& layer, int64_t count) {
  if (layer.is_empty()) {
    throw std::invalid_argument(rank_prefix() + "an encoder or decoder needs a layer to copy, but its holder is empty");
  }
  if (count < 1) {
    throw std::invalid_argument(rank_prefix() + "num_layers is " + std::to_string(count) + "; at least 1 is needed");
  }
  const GeneratorGuard unchanged;
  torch::nn::ModuleList layers;
  for (int64_t i = 0; i < count; ++i) layers->push_back(layer->clone());
  return layers;
}

/// A copy, since a clone of the whole must not share it; an empty one of an empty one.
inline torch::nn::AnyModule copy_of(const torch::nn::AnyModule& norm) {
  const GeneratorGuard unchanged;
  return norm.is_empty() ? torch::nn::AnyModule() : norm.clone();
}

}  // namespace ddp::nn::detail

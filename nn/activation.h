// The activation functions of transformer layers.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/relu.h>
#include <torch/nn/options/transformerlayer.h>

#include <functional>
#include <variant>

namespace ddp::nn::detail {

using Activation = torch::nn::activation_t;
using CustomActivation = std::function<at::Tensor(const at::Tensor&)>;

inline bool has_custom_activation(const Activation& activation) {
  return std::holds_alternative<CustomActivation>(activation);
}

inline bool is_gelu(const Activation& activation) {
  return std::holds_alternative<torch::enumtype::kGELU>(activation);
}

inline at::Tensor activate(const Activation& activation, const at::Tensor& x) {
  if (const auto* own = std::get_if<CustomActivation>(&activation)) return (*own)(x);
  return is_gelu(activation) ? at::gelu(x) : at::relu(x);
}

}  // namespace ddp::nn::detail

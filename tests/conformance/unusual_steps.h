// Steps that are not plain forward, backward and update: twin of unusual_steps.py. Included by conformance_program.cpp
// alone.
#pragma once

#include <torch/csrc/autograd/autograd.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace conformance {

using Gradients = std::vector<torch::Tensor>;

inline Gradients gradients_now(Training& training) {
  Gradients result;
  for (const torch::Tensor& parameter : training.trained()) result.push_back(parameter.grad());
  return result;
}

inline std::pair<Gradients, Gradients> two_gradients(Training& training) {
  training.next_loss().backward();
  const Gradients first = gradients_now(training);
  training.optimizer().zero_grad();
  training.next_loss().backward();
  return {first, gradients_now(training)};
}

inline void kept_gradient(Training& training) {
  const auto [first, second] = two_gradients(training);
  const auto parameters = training.trained();
  for (size_t i = 0; i < parameters.size(); ++i) parameters[i].mutable_grad() = first[i] * 0.3 + second[i] * 0.7;
}

inline void pcgrad(Training& training) {
  const auto [first, second] = two_gradients(training);
  const auto parameters = training.trained();
  training.optimizer().zero_grad();
  for (size_t i = 0; i < parameters.size(); ++i) {
    const torch::Tensor product = (first[i] * second[i]).sum();
    const torch::Tensor squares = second[i].square().sum() + 1e-12;
    const torch::Tensor part = second[i] * (product.clamp_max(0) / squares);
    parameters[i].mutable_grad() = first[i] + second[i] - part;
  }
}

inline void gradient_penalty(Training& training) {
  torch::Tensor loss = training.next_loss();
  for (const torch::Tensor& gradient :
       torch::autograd::grad({loss}, training.trained(), {}, std::nullopt, /*create_graph=*/true)) {
    const torch::Tensor penalty = gradient.square().sum() * 0.1;
    loss = loss + penalty;
  }
  loss.backward();
}

inline void Training::unusual_step() {
  const std::string kind = settings_["unusual"];
  zero_grad(true);
  if (kind == "kept_gradient") {
    kept_gradient(*this);
  } else if (kind == "pcgrad") {
    pcgrad(*this);
  } else if (kind == "retain_graph") {
    const torch::Tensor loss = next_loss();
    loss.backward({}, /*retain_graph=*/true);
    loss.backward();
  } else if (kind == "forwards_then_backwards") {
    std::vector<torch::Tensor> losses;
    for (int i = 0; i < 3; ++i) losses.push_back(next_loss());
    for (const torch::Tensor& loss : losses) loss.backward();
  } else if (kind == "static_no_sync") {
    {
      const auto local = model_->no_sync();
      next_loss().backward();
    }
    next_loss().backward();
  } else if (kind == "gradient_penalty") {
    gradient_penalty(*this);
  } else if (kind == "create_graph") {
    next_loss().backward({}, std::nullopt, /*create_graph=*/true);
    for (const torch::Tensor& parameter : trained()) parameter.mutable_grad() = parameter.grad().detach();
  } else {
    throw std::invalid_argument("conformance_program.cpp knows no unusual step " + kind);
  }
}

}  // namespace conformance

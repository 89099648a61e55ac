// What the tests of regions have in common.
#pragma once

#include <ATen/Functions.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include <functional>
#include <vector>

#include "tests/support/placement.h"

namespace ddp::regions {

using test::here;
using test::placed;
using test::test_device;

using Function = std::function<at::Tensor(const at::Tensor&)>;

/// What one backward leaves: the result, the gradients of the input and of the parameters, and the next random number.
struct Outcome {
  std::vector<at::Tensor> tensors;
};

inline bool equal(const Outcome& left, const Outcome& right) {
  if (left.tensors.size() != right.tensors.size()) return false;
  for (size_t i = 0; i < left.tensors.size(); ++i) {
    if (left.tensors[i].defined() != right.tensors[i].defined()) return false;
    if (left.tensors[i].defined() && !at::equal(left.tensors[i], right.tensors[i])) return false;
  }
  return true;
}

/// Runs `function` on the same input with the same seed, and its backward.
inline Outcome outcome(torch::nn::Module& net, const Function& function) {
  net.zero_grad();
  torch::manual_seed(7);
  const at::Tensor input = here(at::rand({8, 16})).requires_grad_();
  const at::Tensor result = function(input);
  result.pow(2).sum().backward();
  Outcome all;
  all.tensors = {result.detach(), input.grad()};
  for (const auto& parameter : net.parameters()) all.tensors.push_back(parameter.grad());
  for (auto& tensor : all.tensors) {
    if (tensor.defined()) tensor = tensor.clone();
  }
  all.tensors.push_back(here(at::rand({3})));
  all.tensors.push_back(at::rand({3}, test_device()));
  return all;
}

inline torch::nn::Sequential block() {
  torch::nn::Sequential net;
  net->push_back(torch::nn::Linear(16, 32));
  net->push_back(torch::nn::ReLU(torch::nn::ReLUOptions().inplace(true)));
  net->push_back(torch::nn::Dropout(0.5));
  net->push_back(torch::nn::Linear(32, 16));
  net->push_back(torch::nn::GELU());
  return placed(net);
}

}  // namespace ddp::regions

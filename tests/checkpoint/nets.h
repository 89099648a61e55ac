// Small models for tests, and their state as values.
#pragma once

#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/optimizer.h>

#include "checkpoint/module_state.h"

namespace ddp::test {

struct NetImpl : torch::nn::Module {
  explicit NetImpl(int64_t outputs = 3)
      : fc1(register_module("fc1", torch::nn::Linear(4, 8))),
        bn(register_module("bn", torch::nn::BatchNorm1d(8))),
        fc2(register_module("fc2", torch::nn::Linear(8, outputs))) {}
  torch::Tensor forward(const torch::Tensor& x) { return fc2(bn(fc1(x).relu())); }
  torch::nn::Linear fc1;
  torch::nn::BatchNorm1d bn;
  torch::nn::Linear fc2;
};
TORCH_MODULE(Net);

inline TensorMap copy_of(const torch::nn::Module& module) {
  auto state = module_state(module);
  for (auto& [name, tensor] : state) tensor = tensor.clone();
  return state;
}

inline bool equal(const TensorMap& left, const TensorMap& right) {
  if (left.size() != right.size()) return false;
  for (const auto& [name, tensor] : left) {
    const auto found = right.find(name);
    if (found == right.end() || !found->second.equal(tensor)) return false;
  }
  return true;
}

/// Deterministic steps on data that depends on the step alone.
inline void train(Net& net, torch::optim::Optimizer& optimizer, int64_t first_step, int64_t steps) {
  for (auto step = first_step; step < first_step + steps; ++step) {
    const auto x = (torch::arange(24, torch::kFloat).view({6, 4}) * (step + 1)).sin();
    optimizer.zero_grad();
    torch::nn::functional::mse_loss(net(x), x.narrow(1, 0, 3).cos()).backward();
    optimizer.step();
  }
}

}  // namespace ddp::test

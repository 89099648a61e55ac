// Blocks with batch norms, each pair of which may be a region of activation checkpointing.
#pragma once

#include <torch/nn/modules/batchnorm.h>

#include <string>
#include <vector>

#include "ddprun/recompute/recompute.h"
#include "tests/fsdp/nets.h"

namespace ddp::test {

struct StackImpl : torch::nn::Module {
  explicit StackImpl(bool has_regions) : has_regions_(has_regions) {
    for (int i = 0; i < 3; ++i) {
      blocks_.push_back(register_module("block" + std::to_string(i), Block(5, 5)));
      norms_.push_back(register_module("norm" + std::to_string(i), torch::nn::BatchNorm1d(5)));
    }
    fill_parameters(*this);
  }
  at::Tensor forward(at::Tensor x) {
    for (size_t i = 0; i < blocks_.size(); ++i) {
      const auto run = [this, i](const at::Tensor& input) { return norms_[i](blocks_[i](input)); };
      x = has_regions_ ? checkpoint({.update_buffers_once = {norms_[i].ptr()}}, run, x) : run(x);
    }
    return x;
  }

 private:
  bool has_regions_;
  std::vector<Block> blocks_;
  std::vector<torch::nn::BatchNorm1d> norms_;
};
TORCH_MODULE(Stack);

}  // namespace ddp::test

// What the tests of fully_shard() train.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <string>

#include "tests/fsdp/has_memory.h"
#include "tests/support/fill_parameters.h"
#include "tests/support/placement.h"

namespace ddp::test {

struct BlockImpl : torch::nn::Module {
  BlockImpl(int64_t in, int64_t out)
      : up(register_module("up", torch::nn::Linear(in, out))),
        mix(register_module("mix", torch::nn::Linear(out, out))) {}
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor h = up(x).tanh();
    return h + mix(h).tanh();
  }
  torch::nn::Linear up, mix;
};
TORCH_MODULE(Block);

/// Dimensions that no number of ranks divides.
struct NetImpl : torch::nn::Module {
  NetImpl()
      : embedding(register_module("embedding", torch::nn::Embedding(11, 5))),
        first(register_module("first", Block(5, 7))),
        second(register_module("second", Block(7, 3))),
        head(register_module("head", torch::nn::Linear(3, 2))) {
    fill_parameters(*this);
  }
  at::Tensor forward(const at::Tensor& x) { return head(second(first(embedding(x)))); }
  torch::nn::Embedding embedding;
  Block first, second;
  torch::nn::Linear head;
};
TORCH_MODULE(Net);

/// Numbers of words, of one rank in one step.
inline at::Tensor words(int64_t rank, int64_t step) {
  return here((at::arange(6, at::kLong) * 3 + rank * 5 + step).remainder(11));
}

}  // namespace ddp::test

// A module whose constructor makes tensors in every way that those of torch::nn and of users do.
#pragma once

#include <ATen/Functions.h>
#include <catch2/catch_test_macros.hpp>
#include <torch/nn/init.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/modules/rnn.h>
#include <torch/nn/pimpl.h>

#include <vector>

#include "tests/fsdp/nets.h"

namespace ddp::test {

struct EveryInitImpl : torch::nn::Module {
  EveryInitImpl()
      : linear(register_module("linear", torch::nn::Linear(8, 6))),
        conv(register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 4, 3)))),
        norm(register_module("norm", torch::nn::BatchNorm1d(6))),
        layer_norm(register_module("layer_norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({6})))),
        embedding(register_module("embedding", torch::nn::Embedding(torch::nn::EmbeddingOptions(9, 6).padding_idx(2)))),
        gru(register_module("gru", torch::nn::GRU(torch::nn::GRUOptions(6, 5).num_layers(2)))) {
    make_parts();
    make_tables();
    make_inits();
    frozen = register_parameter("frozen", at::rand({4, 4}), /*requires_grad=*/false);
    tied = register_parameter("tied", embedding->weight);
    const std::vector<float> values{1, 2, 3, 4, 5, 6};
    at::Tensor outside = at::from_blob(const_cast<float*>(values.data()), {2, 3}, at::kFloat);
    given = register_parameter("given", outside.clone());
    half = register_parameter("half", at::randn({5, 5}).to(at::kBFloat16));
    at::Generator own = at::make_generator<at::CPUGeneratorImpl>(5);
    drawn = register_parameter("drawn", at::empty({6, 6}).uniform_(-1, 1, own).add_(at::randn({6}, own)));
  }

  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor y = layer_norm(norm(linear(x)));
    return y.matmul(q.t()) + mask.sum() + positions[1].sum() + tied.sum() + drawn.sum();
  }

  torch::nn::Linear linear;
  torch::nn::Conv2d conv;
  torch::nn::BatchNorm1d norm;
  torch::nn::LayerNorm layer_norm;
  torch::nn::Embedding embedding;
  torch::nn::GRU gru;
  at::Tensor q, k, v, mask, positions, frozen, tied, given, half, drawn;

 private:
  // Slices of one tensor.
  void make_parts() {
    const at::Tensor all = at::randn({3 * 6, 6}).mul(0.1).requires_grad_(false);
    q = register_parameter("q", all.slice(0, 0, 6));
    k = register_parameter("k", all.slice(0, 6, 12));
    v = register_parameter("v", all.slice(0, 12, 18));
    register_parameter("uneven", at::cat(at::randn({5, 4}).chunk(2, 0)));
    register_parameter("alone", at::dropout(at::ones({6, 6}), 0.5, /*train=*/true));
  }

  void make_tables() {
    mask = register_buffer("mask", at::ones({8, 8}).tril().masked_fill(at::eye(8) == 1, 2));
    at::Tensor table = at::zeros({10, 6});
    const at::Tensor place = at::arange(10, at::kFloat).unsqueeze(1);
    const at::Tensor rate = at::exp(at::arange(0, 6, 2, at::kFloat) * -0.7);
    table.slice(1, 0, 6, 2).copy_(at::sin(place * rate));
    table.slice(1, 1, 6, 2).copy_(at::cos(place * rate));
    for (int64_t row = 0; row < 3; ++row) table[row].add_(static_cast<double>(row));
    positions = register_buffer("positions", table);
    register_buffer("list", at::tensor(std::vector<int64_t>{3, 1, 2}));
    register_buffer("order", at::randperm(20));
  }

  void make_inits() {
    namespace init = torch::nn::init;
    const auto parameter = [this](const char* name) { return register_parameter(name, at::empty({6, 6})); };
    init::orthogonal_(parameter("orthogonal"));
    init::xavier_normal_(parameter("xavier"));
    init::eye_(parameter("eye"));
    init::sparse_(parameter("sparse"), 0.4);
    init::dirac_(register_parameter("dirac", at::empty({4, 4, 3})));
    const at::NoGradGuard no_grad;
    // A truncated normal distribution by its quantiles.
    parameter("truncated").uniform_(-0.9, 0.9).erfinv_().mul_(0.02).clamp_(-0.04, 0.04);
    parameter("chosen").bernoulli_(0.3).index_fill_(0, at::tensor({1, 2}, at::kLong), 7);
    parameter("exponential").exponential_(2).sub_(at::rand({1, 6}));
    parameter("untouched").zero_();
  }
};
TORCH_MODULE(EveryInit);

inline void expect_equal_models(const torch::nn::Module& mine, const torch::nn::Module& wanted) {
  const auto parameters = mine.named_parameters();
  REQUIRE(parameters.keys() == wanted.named_parameters().keys());
  for (const auto& parameter : wanted.named_parameters()) {
    INFO(parameter.key());
    const at::Tensor& other = parameters[parameter.key()];
    CHECK(other.requires_grad() == parameter.value().requires_grad());
    CHECK(other.strides() == parameter.value().strides());
    CHECK(other.is_leaf());
    CHECK(at::equal(other, parameter.value()));
  }
  const auto buffers = mine.named_buffers();
  for (const auto& buffer : wanted.named_buffers()) {
    INFO(buffer.key());
    CHECK(at::equal(buffers[buffer.key()], buffer.value()));
  }
}

}  // namespace ddp::test

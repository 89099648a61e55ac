// fully_shard(): values, memory, and what a program does with the wrapper.
#include "ddprun/fsdp/fully_shard.h"

#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <catch2/catch_test_macros.hpp>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "ddprun/comm/device_mesh.h"
#include "ddprun/optim/optimizers.h"
#include "tests/fsdp/nets.h"
#include "tests/support/every_wire.h"
#include "tests/support/rank_checks.h"
#include "tests/support/ranks.h"

namespace ddp {
namespace {

using test::Block;
using test::Net;
using test::placed;
using test::run_ranks;
using test::words;

FullyShardOptions by_block() {
  return {.units = {children({"embedding"}), each<Block>(), children({"first.mix"})}};
}

// The mean over all ranks' inputs, in one process.
void train_whole(Net& net, torch::optim::SGD& optimizer, int ranks, int step) {
  optimizer.zero_grad();
  for (int rank = 0; rank < ranks; ++rank) (net(words(rank, step)).pow(2).sum() / ranks).backward();
  optimizer.step();
}

template <typename Model>
double largest_difference(Model& model, Net& whole) {
  double largest = 0;
  for (const auto& parameter : whole->named_parameters()) {
    const at::Tensor mine = model->full_parameter(parameter.key());
    largest = std::max(largest, (mine - parameter.value()).abs().max().template item<double>());
  }
  return largest;
}

size_t bytes_of_parameters(const Net& net) {
  size_t bytes = 0;
  for (const at::Tensor& parameter : net->parameters()) {
    if (test::has_memory(parameter)) bytes += parameter.nbytes();
  }
  return bytes;
}

TEST_CASE_METHOD(test::EveryWireAndSize, "fully_shard: trains as one process with all inputs") {
  run([](const GroupHandle& group) {
    Net net = placed(Net());
    Net whole = placed(Net());
    auto model = fully_shard(net, group, by_block());
    torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
    torch::optim::SGD of_whole(whole->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
    for (int step = 0; step < 4; ++step) {
      optimizer.zero_grad();
      model(words(group.rank(), step)).pow(2).sum().backward();
      optimizer.step();
      train_whole(whole, of_whole, group.size(), step);
    }
    RANK_CHECK(largest_difference(model, whole) < 1e-5);
  });
}

TEST_CASE("fully_shard: each rank keeps its rows, and whole parameters only while they are used") {
  run_ranks(3,
            [](const GroupHandle& group) {
              Net net = placed(Net());
              auto model = fully_shard(net, group, by_block());
              const auto names = model->named_parameters().keys();
              RANK_CHECK(names == Net()->named_parameters().keys());
              const int64_t rows_of_head[] = {1, 1, 0};
              RANK_CHECK(model->named_parameters()["head.weight"].size(0) == rows_of_head[group.rank()]);
              RANK_CHECK(bytes_of_parameters(net) == 0);
              const at::Tensor output = model(words(group.rank(), 0));
              // The root's, for the backward.
              RANK_CHECK(bytes_of_parameters(net) == (3 * 2 + 2) * sizeof(float));
              output.sum().backward();
              RANK_CHECK(bytes_of_parameters(net) == 0);
              for (const at::Tensor& parameter : net->parameters()) RANK_CHECK(!parameter.grad().defined());
              for (const at::Tensor& shard : model->parameters()) RANK_CHECK(shard.grad().sizes() == shard.sizes());
            },
            {.wire = test::wires().front()});
}

TEST_CASE("fully_shard: a forward without gradients frees what it gathers but the root") {
  run_ranks(2, [](const GroupHandle& group) {
    Net net = placed(Net());
    auto model = fully_shard(net, group, by_block());
    const at::NoGradGuard no_grad;
    const at::Tensor expected = placed(Net())(words(0, 1));
    RANK_CHECK(at::allclose(model(words(0, 1)), expected));
    model->reshard();
    RANK_CHECK(bytes_of_parameters(net) == 0);
  });
}

TEST_CASE("fully_shard: the root sees a change of its shards between two forwards") {
  run_ranks(2, [](const GroupHandle& group) {
    auto model = fully_shard(placed(Net()), group);
    const at::NoGradGuard no_grad;
    const at::Tensor before = model(words(0, 0));
    for (at::Tensor& shard : model->parameters()) shard.mul_(2);
    Net doubled = placed(Net());
    for (at::Tensor& parameter : doubled->parameters()) parameter.mul_(2);
    RANK_CHECK(at::allclose(model(words(0, 0)), doubled(words(0, 0))));
  });
}

TEST_CASE("fully_shard: an evaluation before a step leaves nothing gathered that the step makes old") {
  run_ranks(2, [](const GroupHandle& group) {
    for (const bool reshards : {true, false}) {
      for (const bool is_fused : {true, false}) {
        FullyShardOptions options = by_block();
        options.reshard_after_forward = reshards;
        auto model = fully_shard(placed(Net()), group, options);
        Net whole = placed(Net());
        torch::optim::SGD of_whole(whole->parameters(), 0.1);
        optim::SGD fused(model->parameters(), optim::SGDOptions(0.1));
        torch::optim::SGD plain(model->parameters(), 0.1);
        for (int step = 0; step < 3; ++step) {
          model->zero_grad();
          model(words(group.rank(), step)).pow(2).sum().backward();
          {
            const at::NoGradGuard no_grad;
            static_cast<void>(model(words(group.rank(), step)));
          }
          static_cast<void>(is_fused ? fused.step() : plain.step());
          train_whole(whole, of_whole, 2, step);
        }
        const at::NoGradGuard no_grad;
        RANK_CHECK(at::allclose(model(words(0, 5)), whole(words(0, 5)), 1e-4, 1e-5));
      }
    }
  });
}

TEST_CASE("fully_shard: the module's tensors may be frozen as well") {
  run_ranks(2, [](const GroupHandle& group) {
    Net net = placed(Net());
    auto model = fully_shard(net, group, by_block());
    net->first->up->weight.set_requires_grad(false);
    model(words(group.rank(), 0)).sum().backward();
    RANK_CHECK(!model->named_parameters()["first.up.weight"].grad().defined());
    RANK_CHECK(model->named_parameters()["first.up.bias"].grad().defined());
  });
}

struct FillingImpl : torch::nn::Module {
  FillingImpl() : layer(register_module("layer", torch::nn::Linear(3, 3))) { test::fill_parameters(*this); }
  at::Tensor forward(const at::Tensor& x, std::vector<at::Tensor>& seen) {
    seen.push_back(layer(x));
    return seen.back();
  }
  torch::nn::Linear layer;
};
TORCH_MODULE(Filling);

TEST_CASE("fully_shard: what a forward writes into an argument reaches the caller, with a policy too") {
  run_ranks(2, [](const GroupHandle& group) {
    auto model = fully_shard(placed(Filling()), group, {.policy = {.param_dtype = at::kBFloat16}});
    std::vector<at::Tensor> seen;
    const at::Tensor output = model(test::here(at::ones({1, 3})), seen);
    RANK_REQUIRE(seen.size() == 1);
    RANK_CHECK(seen.front().scalar_type() == at::kBFloat16);
  });
}

// A module with two names, and a parameter that a forward first reads without gradients.
struct TwiceImpl : torch::nn::Module {
  TwiceImpl() : a(register_module("a", torch::nn::Linear(3, 3))) {
    register_module("b", a);
    test::fill_parameters(*this);
  }
  at::Tensor forward(const at::Tensor& x) {
    at::Tensor size;
    {
      const at::NoGradGuard no_grad;
      size = a->weight.norm();
    }
    return a(x) / size;
  }
  torch::nn::Linear a;
};
TORCH_MODULE(Twice);

TEST_CASE("fully_shard: a shared module has its parameters under both names; a read without gradients may be first") {
  run_ranks(2, [](const GroupHandle& group) {
    auto model = fully_shard(placed(Twice()), group, {.units = {children({"a"})}});
    for (const std::string& name : model->named_parameters().keys()) {
      RANK_CHECK(at::equal(model->full_parameter(name), model->full_parameter("a." + name.substr(2))));
    }
    model(test::here(at::ones({2, 3}))).sum().backward();
    RANK_CHECK(model->named_parameters()["a.weight"].grad().defined());
  });
}

TEST_CASE("fully_shard: gradients of several backwards add up, reduced at once or at the end") {
  run_ranks(3, [](const GroupHandle& group) {
    std::vector<std::vector<at::Tensor>> gradients;
    for (const bool reduces_each : {true, false}) {
      auto model = fully_shard(placed(Net()), group, by_block());
      for (int step = 0; step < 3; ++step) {
        model->set_requires_gradient_sync(reduces_each || step == 2);
        model(words(group.rank(), step)).sum().backward();
      }
      std::vector<at::Tensor> of_model;
      for (const at::Tensor& shard : model->parameters()) of_model.push_back(shard.grad());
      gradients.push_back(of_model);
    }
    for (size_t i = 0; i < gradients[0].size(); ++i) RANK_CHECK(at::allclose(gradients[0][i], gradients[1][i]));
  });
}

struct OptionalPartImpl : torch::nn::Module {
  OptionalPartImpl()
      : part(register_module("part", torch::nn::Linear(3, 3))), head(register_module("head", torch::nn::Linear(3, 2))) {
    test::fill_parameters(*this);
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor y = head(uses_part ? part(x) : x);
    if (fails) throw std::runtime_error("an error of the forward");
    return y;
  }
  torch::nn::Linear part, head;
  bool uses_part = true;
  bool fails = false;
};
TORCH_MODULE(OptionalPart);

at::Tensor rows_of(const GroupHandle& group) {
  return test::here((at::arange(6, at::kFloat) * (2 + group.rank())).cos().view({2, 3}));
}

TEST_CASE("fully_shard: sums that wait for the replicas are reduced when the last backward does not use their unit") {
  run_ranks(4, [](const GroupHandle& group) {
    DeviceMesh mesh = init_device_mesh(group, {2, 2}, {"replicate", "shard"});
    std::vector<at::Tensor> gradients;
    for (const bool waits : {false, true}) {
      OptionalPart net = placed(OptionalPart());
      auto model = fully_shard(net, mesh, {.units = {children({"part"})}});
      model->set_requires_all_reduce(!waits);
      model(rows_of(group)).pow(2).sum().backward();
      net->uses_part = false;
      model->set_requires_all_reduce(true);
      model(rows_of(group)).pow(2).sum().backward();
      const at::Tensor gradient = model->named_parameters()["part.weight"].grad();
      RANK_REQUIRE(gradient.defined());
      gradients.push_back(gradient);
    }
    RANK_CHECK(at::allclose(gradients[0], gradients[1]));
  });
}

TEST_CASE("fully_shard: a forward that throws leaves the gradients of earlier backwards") {
  run_ranks(2, [](const GroupHandle& group) {
    std::vector<at::Tensor> gradients;
    for (const bool fails : {false, true}) {
      OptionalPart net = placed(OptionalPart());
      auto model = fully_shard(net, group, {.units = {children({"part"})}});
      model->set_requires_gradient_sync(false);
      model(rows_of(group)).pow(2).sum().backward();
      net->fails = fails;
      try {
        static_cast<void>(model(rows_of(group)));
      } catch (const std::runtime_error&) {
        net->fails = false;
      }
      model->set_requires_gradient_sync(true);
      model(rows_of(group)).sum().backward();
      for (const at::Tensor& shard : model->parameters()) gradients.push_back(shard.grad());
    }
    for (size_t i = 0; i < gradients.size() / 2; ++i) {
      RANK_CHECK(at::allclose(gradients[i], gradients[i + gradients.size() / 2]));
    }
  });
}

TEST_CASE("fully_shard: zero_grad() drops gradients that are not reduced yet") {
  run_ranks(2, [](const GroupHandle& group) {
    Net net = placed(Net());
    auto model = fully_shard(net, group, by_block());
    model->set_requires_gradient_sync(false);
    model(words(group.rank(), 0)).sum().backward();
    RANK_CHECK(net->head->weight.grad().defined());
    model->zero_grad();
    RANK_CHECK(!net->head->weight.grad().defined());
  });
}

TEST_CASE("fully_shard: on a mesh of two dimensions replicas have equal gradients") {
  run_ranks(4, [](const GroupHandle& group) {
    DeviceMesh mesh = init_device_mesh(group, {2, 2}, {"replicate", "shard"});
    Net whole = placed(Net());
    auto model = fully_shard(placed(Net()), mesh, by_block());
    torch::optim::SGD optimizer(model->parameters(), 0.1);
    torch::optim::SGD of_whole(whole->parameters(), 0.1);
    for (int step = 0; step < 2; ++step) {
      optimizer.zero_grad();
      model(words(group.rank(), step)).pow(2).sum().backward();
      optimizer.step();
      train_whole(whole, of_whole, 4, step);
    }
    RANK_CHECK(largest_difference(model, whole) < 1e-5);
  });
}

TEST_CASE("fully_shard: clip_grad_norm_() uses the norm over all ranks") {
  run_ranks(3, [](const GroupHandle& group) {
    Net whole = placed(Net());
    for (int rank = 0; rank < 3; ++rank) (whole(words(rank, 0)).sum() / 3).backward();
    for (const double type : {2.0, 1.0, std::numeric_limits<double>::infinity()}) {
      auto model = fully_shard(placed(Net()), group, by_block());
      model(words(group.rank(), 0)).sum().backward();
      std::vector<at::Tensor> all;
      for (const at::Tensor& parameter : whole->parameters()) all.push_back(parameter.grad().reshape({-1}));
      const double expected = at::linalg_vector_norm(at::cat(all), type).item<double>();
      const double norm = model->clip_grad_norm_(expected / 4, type).item<double>();
      RANK_CHECK(std::abs(norm - expected) < 1e-5 * expected);
      const at::Tensor gradient = model->named_parameters()["embedding.weight"].grad();
      const at::Tensor before = whole->embedding->weight.grad().narrow(0, group.rank() * 4, gradient.size(0));
      RANK_CHECK(at::allclose(gradient, before / 4, 1e-4, 1e-6));
    }
  });
}

TEST_CASE("fully_shard: a policy computes in 16 bits and keeps the shards in 32") {
  run_ranks(2, [](const GroupHandle& group) {
    FullyShardOptions options = by_block();
    options.policy = {.param_dtype = at::kBFloat16, .output_dtype = at::kFloat};
    Net net = placed(Net());
    auto model = fully_shard(net, group, options);
    const at::Tensor output = model(words(group.rank(), 0));
    RANK_CHECK(output.scalar_type() == at::kFloat);
    RANK_CHECK(net->head->weight.scalar_type() == at::kBFloat16);
    output.sum().backward();
    for (const at::Tensor& shard : model->parameters()) {
      RANK_CHECK(shard.scalar_type() == at::kFloat);
      RANK_CHECK(shard.grad().scalar_type() == at::kFloat);
    }
  });
}

TEST_CASE("fully_shard: shards that are frozen or trained later are followed") {
  run_ranks(2, [](const GroupHandle& group) {
    auto model = fully_shard(placed(Net()), group, by_block());
    at::Tensor weight = model->named_parameters()["first.up.weight"];
    weight.set_requires_grad(false);
    model(words(group.rank(), 0)).sum().backward();
    RANK_CHECK(!weight.grad().defined());
    weight.set_requires_grad(true);
    model(words(group.rank(), 0)).sum().backward();
    RANK_CHECK(weight.grad().defined());
  });
}

TEST_CASE("fully_shard: whole parameters are read and written by name") {
  run_ranks(3, [](const GroupHandle& group) {
    auto model = fully_shard(placed(Net()), group, by_block());
    const at::Tensor value = test::here(at::arange(35, at::kFloat).view({7, 5}));
    model->set_full_parameter("first.up.weight", value);
    RANK_CHECK(at::equal(model->full_parameter("first.up.weight"), value));
  });
}

TEST_CASE("fully_shard: ranks begin with the values of rank 0") {
  run_ranks(3, [](const GroupHandle& group) {
    Net net = placed(Net());
    {
      const at::NoGradGuard no_grad;
      net->head->weight.add_(group.rank());
    }
    auto model = fully_shard(net, group, by_block());
    RANK_CHECK(at::equal(model->full_parameter("head.weight"), placed(Net())->head->weight));
  });
}

// A parameter with two names, and one that no operator uses.
struct TiedImpl : torch::nn::Module {
  TiedImpl() {
    embedding = register_module("embedding", torch::nn::Embedding(11, 4));
    weight = register_parameter("weight", embedding->weight);
    spare = register_parameter("spare", at::ones({3}));
    test::fill_parameters(*this);
  }
  at::Tensor forward(const at::Tensor& x) { return at::linear(embedding(x), weight); }
  torch::nn::Embedding embedding{nullptr};
  at::Tensor weight, spare;
};
TORCH_MODULE(Tied);

TEST_CASE("fully_shard: a shared parameter is one, and one that is not used has no gradient") {
  run_ranks(2, [](const GroupHandle& group) {
    Tied whole = placed(Tied());
    for (int rank = 0; rank < 2; ++rank) (whole(words(rank, 0)).pow(2).sum() / 2).backward();
    auto model = fully_shard(placed(Tied()), group);
    model(words(group.rank(), 0)).pow(2).sum().backward();
    const auto shards = model->named_parameters();
    RANK_CHECK(shards["weight"].is_same(shards["embedding.weight"]));
    const at::Tensor rows = whole->weight.grad().narrow(0, group.rank() * 6, shards["weight"].size(0));
    RANK_CHECK(at::allclose(shards["weight"].grad(), rows));
    RANK_CHECK(!shards["spare"].grad().defined());
  });
}

}  // namespace
}  // namespace ddp

// fully_shard() with activation checkpointing, SyncBatchNorm, autocast and graphs that are used twice.
#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>
#include <catch2/catch_test_macros.hpp>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules/batchnorm.h>

#include <cmath>
#include <string>
#include <vector>

#include "ddprun/amp/grad_scaler.h"
#include "ddprun/fsdp/fully_shard.h"
#include "ddprun/optim/optimizers.h"
#include "ddprun/recompute/recompute.h"
#include "ddprun/syncbn/conversion.h"
#include "tests/fsdp/nets.h"
#include "tests/fsdp/stack.h"
#include "tests/support/every_wire.h"
#include "tests/support/rank_checks.h"
#include "tests/support/ranks.h"

namespace ddp {
namespace {

using test::Block;
using test::here;
using test::placed;
using test::run_ranks;
using test::Stack;

at::Tensor input_of(const GroupHandle& group) {
  return here((at::arange(20, at::kFloat) * (1 + group.rank())).sin().view({4, 5}));
}

std::vector<at::Tensor> gradients_of(const GroupHandle& group, bool has_regions, const FullyShardOptions& options,
                                     bool has_sync_batch_norm = false) {
  Stack net = placed(Stack(has_regions));
  if (has_sync_batch_norm) convert_sync_batchnorm(net, group);
  auto model = fully_shard(net, group, options);
  for (int i = 0; i < 2; ++i) model(input_of(group)).pow(3).sum().backward();
  std::vector<at::Tensor> result;
  for (const at::Tensor& shard : model->parameters()) result.push_back(shard.grad());
  for (const at::Tensor& buffer : model->buffers()) result.push_back(buffer);
  for (const at::Tensor& parameter : net->parameters()) RANK_CHECK(!test::has_memory(parameter));
  return result;
}

void check_equal(const std::vector<at::Tensor>& some, const std::vector<at::Tensor>& others) {
  RANK_REQUIRE(some.size() == others.size());
  for (size_t i = 0; i < some.size(); ++i) RANK_CHECK(at::equal(some[i], others[i]));
}

TEST_CASE_METHOD(test::EveryWire, "fully_shard: regions inside units give the gradients of a run without") {
  run(2, [](const GroupHandle& group) {
    const FullyShardOptions by_block{.units = {each<Block>()}};
    check_equal(gradients_of(group, true, by_block), gradients_of(group, false, by_block));
    check_equal(gradients_of(group, true, {}), gradients_of(group, false, by_block));
  });
}

TEST_CASE_METHOD(test::EveryWire, "fully_shard: with SyncBatchNorm, in a region as well") {
  run(3, [](const GroupHandle& group) {
    const FullyShardOptions by_norm{.units = {each<Block>(), each<torch::nn::BatchNorm1d>()}};
    const auto expected = gradients_of(group, false, {}, true);
    check_equal(gradients_of(group, false, by_norm, true), expected);
    check_equal(gradients_of(group, true, by_norm, true), expected);
  });
}

TEST_CASE("fully_shard: a graph that is used twice gathers again") {
  run_ranks(2, [](const GroupHandle& group) {
    auto model = fully_shard(placed(Block(5, 5)), group, {.units = {children({"up", "mix"})}});
    const at::Tensor loss = model(input_of(group)).pow(2).sum();
    loss.backward({}, /*retain_graph=*/true);
    const at::Tensor first = model->parameters().front().grad().clone();
    loss.backward();
    RANK_CHECK(at::allclose(model->parameters().front().grad(), first * 2));
  });
}

TEST_CASE("fully_shard: gradients with respect to the input, and second ones") {
  run_ranks(2, [](const GroupHandle& group) {
    Block net = placed(Block(5, 5));
    test::fill_parameters(*net);
    Block plain = placed(Block(5, 5));
    test::fill_parameters(*plain);
    auto model = fully_shard(net, group, {.units = {children({"up", "mix"})}});
    const at::Tensor x = input_of(group).requires_grad_();
    const auto second = [&](auto& of) {
      const at::Tensor first =
          torch::autograd::grad({of(x).pow(3).sum()}, {x}, {}, std::nullopt, /*create_graph=*/true).front();
      return torch::autograd::grad({first.pow(2).sum()}, {x}).front();
    };
    RANK_CHECK(at::allclose(second(model), second(plain), 1e-4, 1e-5));
    for (const at::Tensor& shard : model->parameters()) RANK_CHECK(!shard.grad().defined());
  });
}

// Forces of an energy, and layers after them.
struct ForcesImpl : torch::nn::Module {
  ForcesImpl() : energy(register_module("energy", Block(5, 5))), head(register_module("head", Block(5, 5))) {
    test::fill_parameters(*this);
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor forces =
        torch::autograd::grad({energy(x).pow(2).sum()}, {x}, {}, std::nullopt, /*create_graph=*/true).front();
    return head(energy(forces));
  }
  Block energy, head;
};
TORCH_MODULE(Forces);

TEST_CASE("fully_shard: a backward within the forward") {
  run_ranks(2, [](const GroupHandle& group) {
    Forces plain = placed(Forces());
    for (int rank = 0; rank < 2; ++rank) {
      const at::Tensor x = (here(at::arange(20, at::kFloat) * (1 + rank)).sin().view({4, 5})).requires_grad_();
      (plain(x).pow(2).sum() / 2).backward();
    }
    for (const bool has_units : {true, false}) {
      FullyShardOptions options;
      if (has_units) options.units = {each<Block>()};
      auto model = fully_shard(placed(Forces()), group, options);
      model(input_of(group).requires_grad_()).pow(2).sum().backward();
      for (const auto& shard : model->named_parameters()) {
        const at::Tensor whole = plain->named_parameters()[shard.key()].grad();
        const int64_t first = group.rank() == 0 ? 0 : (whole.size(0) + 1) / 2;
        RANK_CHECK(at::allclose(shard.value().grad(), whole.narrow(0, first, shard.value().size(0)), 1e-4, 1e-5));
      }
    }
  });
}

TEST_CASE("fully_shard: a gradient that one rank finds infinite is skipped by all") {
  run_ranks(3, [](const GroupHandle& group) {
    Block net = placed(Block(5, 5));
    test::fill_parameters(*net);
    auto model = fully_shard(net, group);
    optim::SGD optimizer(model->parameters(), optim::SGDOptions(0.1));
    GradScaler scaler({.init_scale = 8, .device = test::test_device().type()});
    const auto step = [&](bool is_infinite) {
      optimizer.zero_grad();
      scaler.scale(model(input_of(group)).sum()).backward();
      // The last rank's rows alone.
      if (is_infinite && group.rank() == 2) model->parameters().front().mutable_grad().fill_(INFINITY);
      scaler.step(optimizer);
      scaler.update();
    };
    const at::Tensor before = model->parameters().front().detach().clone();
    step(true);
    RANK_CHECK(at::equal(model->parameters().front(), before));
    RANK_CHECK(scaler.get_scale() == 4);
    step(false);
    RANK_CHECK(!at::equal(model->parameters().front(), before));
  });
}

TEST_CASE("fully_shard: two models in one process, one after the other's forward") {
  run_ranks(2, [](const GroupHandle& group) {
    auto one = fully_shard(placed(Block(5, 5)), group);
    auto two = fully_shard(placed(Block(5, 5)), group);
    two(one(input_of(group))).pow(2).sum().backward();
    for (const at::Tensor& shard : one->parameters()) RANK_CHECK(shard.grad().defined());
    for (const at::Tensor& shard : two->parameters()) RANK_CHECK(shard.grad().defined());
  });
}

}  // namespace
}  // namespace ddp

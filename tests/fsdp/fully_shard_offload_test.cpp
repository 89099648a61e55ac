// fully_shard() with shards, gradients and optimizer state in host memory: the bits of a run that has them on the
// device, with everything that a program does beside. On the CPU both are in host memory.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <torch/nn/modules/batchnorm.h>

#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ddprun/amp/grad_scaler.h"
#include "ddprun/checkpoint/checkpoint_manager.h"
#include "ddprun/comm/device_mesh.h"
#include "ddprun/fsdp/fully_shard.h"
#include "ddprun/optim/optimizers.h"
#include "ddprun/recompute/recompute.h"
#include "tests/fsdp/nets.h"
#include "tests/fsdp/stack.h"
#include "tests/support/catch.h"
#include "tests/support/rank_checks.h"
#include "tests/support/ranks.h"
#include "tests/support/temporary_folder.h"

namespace ddp {
namespace {

using test::Block;
using test::Net;
using test::placed;
using test::run_ranks;
using test::words;

enum class Place { kDevice, kPinned, kPageable, kFromCpu };

FullyShardOptions by_place(Place place) {
  FullyShardOptions options{.units = {children({"embedding"}), each<Block>(), children({"first.mix"})}};
  if (place != Place::kDevice) options.offload = CpuOffload{.pin_memory = place != Place::kPageable};
  return options;
}

template <typename Model>
Model put(Model model, Place place) {
  return place == Place::kFromCpu ? model : placed(model);
}

std::vector<at::Tensor> on_cpu(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> copies;
  for (const at::Tensor& tensor : tensors) copies.push_back(tensor.detach().cpu().clone());
  return copies;
}

template <typename Model>
std::vector<at::Tensor> values_of(Model& model) {
  std::vector<at::Tensor> values;
  for (const at::Tensor& shard : model->parameters()) {
    values.push_back(shard);
    if (shard.grad().defined()) values.push_back(shard.grad());
  }
  return on_cpu(values);
}

// What a run leaves, for each place of the shards, is the same.
void check_places(const GroupHandle& group,
                  const std::function<std::vector<at::Tensor>(const GroupHandle&, Place)>& train) {
  const std::vector<at::Tensor> expected = train(group, Place::kDevice);
  for (const Place place : {Place::kPinned, Place::kPageable, Place::kFromCpu}) {
    const std::vector<at::Tensor> values = train(group, place);
    RANK_REQUIRE(values.size() == expected.size());
    for (size_t i = 0; i < values.size(); ++i) RANK_CHECK(at::equal(values[i], expected[i]));
  }
}

TEST_CASE("Offload: shards, gradients and states are in host memory, gathered parameters and buffers on the device") {
  run_ranks(3, [](const GroupHandle& group) {
    Net net = put(Net(), Place::kFromCpu);
    net->register_buffer("buffer", at::ones({2}));
    auto model = fully_shard(net, group, by_place(Place::kFromCpu));
    optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(0.01));
    model(words(group.rank(), 0)).sum().backward();
    optimizer.step();
    for (const at::Tensor& shard : model->parameters()) {
      RANK_CHECK(shard.is_cpu());
      RANK_CHECK(shard.grad().is_cpu());
      RANK_CHECK((shard.numel() == 0 || shard.is_pinned() == test::is_on_devices()));
    }
    for (const at::Tensor& parameter : net->parameters()) RANK_CHECK(parameter.device() == test::test_device());
    RANK_CHECK(net->named_buffers()["buffer"].device() == test::test_device());
    RANK_CHECK(model->named_buffers()["buffer"].device() == test::test_device());
  });
}

TEST_CASE("Offload: trains as on the device") {
  for (const int ranks : {1, 2, 3}) {
    run_ranks(ranks, [](const GroupHandle& group) {
      check_places(group, [](const GroupHandle& all, Place place) {
        auto model = fully_shard(put(Net(), place), all, by_place(place));
        optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(0.01));
        for (int step = 0; step < 3; ++step) {
          optimizer.zero_grad();
          model(words(all.rank(), step)).pow(2).sum().backward();
          optimizer.step();
        }
        return values_of(model);
      });
    });
  }
}

TEST_CASE("Offload: an optimizer that steps right after an evaluation waits for the copies") {
  run_ranks(2, [](const GroupHandle& group) {
    check_places(group, [](const GroupHandle& all, Place place) {
      auto model = fully_shard(put(Net(), place), all, by_place(place));
      std::vector<at::Tensor> results;
      for (int step = 0; step < 3; ++step) {
        const at::NoGradGuard no_grad;
        results.push_back(model(words(all.rank(), step)));
        for (at::Tensor& shard : model->parameters()) shard.mul_(0.5);
      }
      return on_cpu(results);
    });
  });
}

TEST_CASE("Offload: with clipping, a scaler and gradients of several backwards") {
  run_ranks(2, [](const GroupHandle& group) {
    for (const bool reduces_each : {true, false}) {
      check_places(group, [&](const GroupHandle& all, Place place) {
        auto model = fully_shard(put(Net(), place), all, by_place(place));
        optim::SGD optimizer(model->parameters(), optim::SGDOptions(0.1).momentum(0.9));
        GradScaler scaler({.init_scale = 8, .device = test::test_device().type()});
        std::vector<at::Tensor> results;
        for (int step = 0; step < 2; ++step) {
          optimizer.zero_grad();
          for (int micro = 0; micro < 3; ++micro) {
            model->set_requires_gradient_sync(reduces_each || micro == 2);
            scaler.scale(model(words(all.rank(), step * 3 + micro)).pow(2).sum()).backward();
          }
          scaler.unscale_(optimizer);
          results.push_back(model->clip_grad_norm_(0.1));
          scaler.step(optimizer);
          scaler.update();
        }
        RANK_CHECK(results.front().item<double>() > 0.1);
        std::vector<at::Tensor> values = values_of(model);
        for (const at::Tensor& norm : on_cpu(results)) values.push_back(norm);
        return values;
      });
    }
  });
}

TEST_CASE("Offload: a gradient that one rank finds infinite is skipped by all") {
  run_ranks(3, [](const GroupHandle& group) {
    auto model = fully_shard(put(Net(), Place::kFromCpu), group, by_place(Place::kFromCpu));
    optim::SGD optimizer(model->parameters(), optim::SGDOptions(0.1));
    GradScaler scaler({.init_scale = 8, .device = test::test_device().type()});
    const std::vector<at::Tensor> before = on_cpu(model->parameters());
    scaler.scale(model(words(group.rank(), 0)).sum()).backward();
    if (group.rank() == 0) model->parameters().front().mutable_grad().fill_(INFINITY);
    scaler.step(optimizer);
    scaler.update();
    const std::vector<at::Tensor> after = on_cpu(model->parameters());
    for (size_t i = 0; i < after.size(); ++i) RANK_CHECK(at::equal(after[i], before[i]));
    RANK_CHECK(scaler.get_scale() == 4);
  });
}

TEST_CASE("Offload: with a mesh of two dimensions, sums that wait for the replicas, a policy and nothing freed") {
  run_ranks(4, [](const GroupHandle& group) {
    DeviceMesh mesh = init_device_mesh(group, {2, 2}, {"replicate", "shard"});
    for (const bool waits : {false, true}) {
      check_places(group, [&](const GroupHandle& all, Place place) {
        FullyShardOptions options = by_place(place);
        options.policy = {.param_dtype = at::kBFloat16, .reduce_dtype = at::kFloat, .output_dtype = at::kFloat};
        if (waits) options.reshard_after_forward = false;
        auto model = fully_shard(put(Net(), place), mesh, options);
        torch::optim::SGD optimizer(model->parameters(), 0.1);
        for (int step = 0; step < 2; ++step) {
          optimizer.zero_grad();
          model->set_requires_all_reduce(!waits);
          model(words(all.rank(), step)).pow(2).sum().backward();
          model->set_requires_all_reduce(true);
          model(words(all.rank(), step + 9)).pow(2).sum().backward();
          optimizer.step();
        }
        return values_of(model);
      });
    }
  });
}

TEST_CASE("Offload: with regions of checkpoint(), and frozen parameters") {
  run_ranks(2, [](const GroupHandle& group) {
    check_places(group, [](const GroupHandle& all, Place place) {
      test::Stack net = put(test::Stack(/*has_regions=*/true), place);
      net->named_parameters()["block1.up.weight"].set_requires_grad(false);
      FullyShardOptions options = by_place(place);
      options.units = {each<Block>()};
      auto model = fully_shard(net, all, options);
      torch::optim::SGD optimizer(model->parameters(), 0.1);
      for (int step = 0; step < 2; ++step) {
        optimizer.zero_grad();
        model(test::here((at::arange(20, at::kFloat) * (1 + all.rank() + step)).sin().view({4, 5})))
            .pow(3)
            .sum()
            .backward();
        optimizer.step();
      }
      std::vector<at::Tensor> values = values_of(model);
      for (const at::Tensor& buffer : on_cpu(model->buffers())) values.push_back(buffer);
      return values;
    });
  });
}

TEST_CASE("Offload: whole parameters are read and written by name") {
  run_ranks(3, [](const GroupHandle& group) {
    auto model = fully_shard(put(Net(), Place::kFromCpu), group, by_place(Place::kPinned));
    const at::Tensor value = at::arange(35, at::kFloat).view({7, 5});
    model->set_full_parameter("first.up.weight", test::here(value));
    const at::Tensor whole = model->full_parameter("first.up.weight");
    RANK_CHECK(whole.device() == test::test_device());
    RANK_CHECK(at::equal(whole.cpu(), value));
  });
}

TEST_CASE("Offload: ranks begin with the values of rank 0") {
  run_ranks(3, [](const GroupHandle& group) {
    Net net;
    {
      const at::NoGradGuard no_grad;
      net->head->weight.add_(group.rank());
    }
    auto model = fully_shard(net, group, by_place(Place::kFromCpu));
    RANK_CHECK(at::equal(model->full_parameter("head.weight").cpu(), Net()->head->weight));
  });
}

TEST_CASE("Offload: a checkpoint of one run is loaded by another, offloaded or not") {
  for (const Place saves : {Place::kPinned, Place::kDevice}) {
    for (const Place loads : {Place::kPinned, Place::kDevice}) {
      const test::TemporaryFolder folder;
      run_ranks(2, [&](const GroupHandle& group) {
        const auto train = [&](auto& model, auto& optimizer, int first, int last) {
          for (int step = first; step < last; ++step) {
            optimizer.zero_grad();
            model(words(group.rank(), step)).pow(2).sum().backward();
            optimizer.step();
          }
        };
        CheckpointManager checkpoints(folder.path(), group);
        auto model = fully_shard(put(Net(), saves), group, by_place(saves));
        optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(0.01));
        train(model, optimizer, 0, 2);
        checkpoints.save(2, {.model = model, .optimizer = optimizer});
        train(model, optimizer, 2, 4);

        auto other = fully_shard(put(Net(), loads), group, by_place(loads));
        optim::AdamW of_other(other->parameters(), torch::optim::AdamWOptions(0.01));
        RANK_REQUIRE(checkpoints.load_latest({.model = other, .optimizer = of_other}).has_value());
        train(other, of_other, 2, 4);
        const std::vector<at::Tensor> values = values_of(other);
        const std::vector<at::Tensor> expected = values_of(model);
        for (size_t i = 0; i < values.size(); ++i) RANK_CHECK(at::equal(values[i], expected[i]));
      });
    }
  }
}

TEST_CASE("Offload: after a forward that throws, and a reset, training continues") {
  run_ranks(2, [](const GroupHandle& group) {
    auto model = fully_shard(put(Net(), Place::kFromCpu), group, by_place(Place::kFromCpu));
    const at::Tensor loss = model(words(group.rank(), 0)).sum();
    model->reset_iteration();
    {
      const at::NoGradGuard no_grad;
      for (at::Tensor& shard : model->parameters()) shard.mul_(0.5);
    }
    model(words(group.rank(), 0)).sum().backward();
    RANK_CHECK(model->parameters().front().grad().defined());
  });
}

}  // namespace
}  // namespace ddp

// fully_shard() of models of deferred_init(): values, memory, loading.
#include <ATen/ops/equal.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <catch2/catch_test_macros.hpp>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "ddprun/checkpoint/checkpoint.h"
#include "ddprun/checkpoint/checkpoint_manager.h"
#include "ddprun/checkpoint/safetensors.h"
#include "ddprun/comm/device_mesh.h"
#include "ddprun/ddp/distributed_data_parallel.h"
#include "ddprun/fsdp/deferred_init.h"
#include "ddprun/fsdp/fully_shard.h"
#include "ddprun/optim/optimizers.h"
#include "tests/fsdp/nets.h"
#include "tests/support/catch.h"
#include "tests/support/errors.h"
#include "tests/support/rank_checks.h"
#include "tests/support/ranks.h"
#include "tests/support/temporary_folder.h"

namespace ddp {
namespace {

using Catch::Matchers::ContainsSubstring;
using test::Block;
using test::error_of;
using test::placed;
using test::run_ranks;

struct DrawnNetImpl : torch::nn::Module {
  DrawnNetImpl()
      : embedding(register_module("embedding", torch::nn::Embedding(11, 5))),
        first(register_module("first", Block(5, 7))),
        second(register_module("second", Block(7, 5))) {
    const at::Tensor all = at::randn({15, 5});
    query = register_parameter("query", all.narrow(0, 0, 5));
    key = register_parameter("key", all.narrow(0, 5, 10));
    tied = register_parameter("tied", embedding->weight);
    mask = register_buffer("mask", at::ones({5, 5}).tril());
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor y = second(first(embedding(x))).matmul(mask);
    return y.matmul(query.t()).matmul(key.t()).narrow(1, 0, 5).matmul(tied.t());
  }
  torch::nn::Embedding embedding;
  Block first, second;
  at::Tensor query, key, tied, mask;
};
TORCH_MODULE(DrawnNet);

constexpr DeferredInitOptions kEveryTensor{.smallest_bytes = 1, .most_resident_bytes = 0};

DrawnNet drawn(uint64_t seed) {
  torch::manual_seed(seed);
  return DrawnNet();
}

// Ranks are threads, which share the random generator, so models are constructed before them.
std::vector<DrawnNet> deferred(const std::vector<uint64_t>& seeds) {
  std::vector<DrawnNet> nets;
  for (const uint64_t seed : seeds) {
    torch::manual_seed(seed);
    nets.push_back(deferred_init([] { return DrawnNet(); }, kEveryTensor));
  }
  return nets;
}

FullyShardOptions block_units() {
  return {.units = {each<Block>()}};
}

template <typename Model>
void check_values(Model& model, const DrawnNet& expected) {
  for (const auto& parameter : expected->named_parameters()) {
    const test::ThreadNote note(parameter.key());
    RANK_CHECK(at::equal(model->full_parameter(parameter.key()).cpu(), parameter.value()));
  }
  RANK_CHECK(at::equal(model->named_buffers()["mask"].cpu(), expected->mask));
  RANK_CHECK(!is_deferred(*model->module()));
}

TEST_CASE("fully_shard: a model of deferred_init() has the values that rank 0 would have constructed") {
  const DrawnNet eager = drawn(3);
  for (const int size : {1, 2, 3}) {
    const std::vector<DrawnNet> nets = deferred({3, 4, 5});
    run_ranks(size, [&](const GroupHandle& group) {
      auto model = fully_shard(placed(nets[static_cast<size_t>(group.rank())]), group, block_units());
      check_values(model, eager);
      for (const at::Tensor& parameter : model->module()->parameters()) RANK_CHECK(!test::has_memory(parameter));
    });
  }
}

TEST_CASE("fully_shard: without init_sync each rank takes its own values, which equal seeds make equal") {
  const DrawnNet eager = drawn(3);
  const std::vector<DrawnNet> nets = deferred({3, 3, 3});
  run_ranks(3, [&](const GroupHandle& group) {
    FullyShardOptions options = block_units();
    options.init_sync = false;
    auto model = fully_shard(placed(nets[static_cast<size_t>(group.rank())]), group, options);
    check_values(model, eager);
  });
}

TEST_CASE("fully_shard: one rank may have constructed its model as always, and replicas agree") {
  const DrawnNet eager = drawn(3);
  std::vector<DrawnNet> nets = deferred({3, 4, 5, 6});
  nets[2] = drawn(9);
  run_ranks(4, [&](const GroupHandle& group) {
    DeviceMesh mesh = init_device_mesh(group, {2, 2}, {"replicate", "shard"});
    auto model = fully_shard(placed(nets[static_cast<size_t>(group.rank())]), mesh, block_units());
    check_values(model, eager);
  });
}

// The model stays on the CPU, whatever the device, and each rank has drawn other values.
TEST_CASE("fully_shard: a model of deferred_init() with shards in host memory and an ignored parameter") {
  const DrawnNet eager = drawn(3);
  for (const bool sync : {true, false}) {
    const std::vector<DrawnNet> nets = deferred({3, sync ? 4U : 3U, sync ? 5U : 3U});
    run_ranks(3, [&](const GroupHandle& group) {
      const auto rank = static_cast<size_t>(group.rank());
      FullyShardOptions options = block_units();
      options.offload = CpuOffload{};
      options.ignored_params = {nets[rank]->key};
      options.init_sync = sync;
      auto model = fully_shard(nets[rank], group, options);
      for (const auto& parameter : eager->named_parameters()) {
        if (parameter.key() == "key") continue;
        const test::ThreadNote note(parameter.key());
        RANK_CHECK(at::equal(model->full_parameter(parameter.key()).cpu(), parameter.value()));
        RANK_CHECK(model->named_parameters()[parameter.key()].is_cpu());
      }
      RANK_CHECK(at::equal(model->named_buffers()["mask"].cpu(), eager->mask));
      RANK_CHECK(!is_deferred(*nets[rank]));
      const DrawnNet own = [&] {
        static std::mutex mutex;  // of the process's random generator
        const std::lock_guard lock(mutex);
        return drawn(sync ? 3 + rank : 3);
      }();
      RANK_CHECK(at::equal(nets[rank]->key, own->key));
    });
  }
}

TEST_CASE("fully_shard: a model of deferred_init() trains as any other") {
  std::vector<DrawnNet> nets = deferred({3, 3});
  const std::vector<DrawnNet> eager{drawn(3), drawn(3)};
  run_ranks(2, [&](const GroupHandle& group) {
    const auto rank = static_cast<size_t>(group.rank());
    auto model = fully_shard(placed(nets[rank]), group, block_units());
    auto other = fully_shard(placed(eager[rank]), group, block_units());
    torch::optim::SGD optimizer(model->parameters(), 0.01);
    torch::optim::SGD of_other(other->parameters(), 0.01);
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      model(test::words(group.rank(), step)).pow(2).mean().backward();
      optimizer.step();
      of_other.zero_grad();
      other(test::words(group.rank(), step)).pow(2).mean().backward();
      of_other.step();
    }
    for (const auto& shard : other->named_parameters()) {
      RANK_CHECK(at::equal(model->named_parameters()[shard.key()], shard.value()));
    }
  });
}

TEST_CASE("fully_shard: without initial values shards are NaN until weights are loaded") {
  const DrawnNet eager = drawn(3);
  const test::TemporaryFolder folder;
  TensorMap whole;
  for (const auto& parameter : eager->named_parameters()) whole.emplace(parameter.key(), parameter.value().detach());
  whole.emplace("mask", eager->mask);
  whole.erase("tied");  // it is embedding.weight
  whole.emplace("tied", eager->tied.detach());
  save_safetensors(folder / "weights.safetensors", whole);
  const std::vector<DrawnNet> nets = deferred({7, 8, 9});
  run_ranks(3, [&](const GroupHandle& group) {
    FullyShardOptions options = block_units();
    options.initial_values = false;
    auto model = fully_shard(placed(nets[static_cast<size_t>(group.rank())]), group, options);
    for (const at::Tensor& shard : model->parameters()) RANK_CHECK(at::isnan(shard).all().item<bool>());
    RANK_CHECK(at::equal(model->named_buffers()["mask"].cpu(), eager->mask));
    load_weights(folder / "weights.safetensors", model, group);
    check_values(model, eager);
  });
}

TEST_CASE("fully_shard: a checkpoint loads into a model whose values were never computed") {
  const test::TemporaryFolder folder;
  const std::vector<DrawnNet> saved = deferred({3, 3});
  const std::vector<DrawnNet> loaded = deferred({5, 6, 7});
  const auto options = [] {
    FullyShardOptions each = block_units();
    each.initial_values = false;
    return each;
  };
  std::map<std::string, at::Tensor> expected;
  run_ranks(2, [&](const GroupHandle& group) {
    auto model = fully_shard(placed(saved[static_cast<size_t>(group.rank())]), group, block_units());
    optim::AdamW optimizer(model->parameters(), optim::AdamWOptions(0.01));
    model(test::words(group.rank(), 0)).pow(2).mean().backward();
    optimizer.step();
    CheckpointManager manager(folder / "run", group);
    manager.save(1, {.model = model, .optimizer = optimizer});
    for (const std::string& name : model->named_parameters().keys()) {
      const at::Tensor value = model->full_parameter(name).cpu();
      if (group.rank() == 0) expected[name] = value;
    }
  });
  run_ranks(3, [&](const GroupHandle& group) {
    auto model = fully_shard(placed(loaded[static_cast<size_t>(group.rank())]), group, options());
    optim::AdamW optimizer(model->parameters(), optim::AdamWOptions(0.01));
    CheckpointManager manager(folder / "run", group);
    RANK_REQUIRE(manager.load_latest({.model = model, .optimizer = optimizer}).has_value());
    for (const auto& [name, value] : expected) RANK_CHECK(at::equal(model->full_parameter(name).cpu(), value));
  });
}

TEST_CASE("fully_shard: a view of a parameter that was taken in the constructor is an error that names it") {
  struct ViewImpl : torch::nn::Module {
    ViewImpl() : layer(register_module("layer", torch::nn::Linear(4, 4))), transposed(layer->weight.t()) {}
    at::Tensor forward(const at::Tensor& x) { return layer(x) + x.matmul(transposed); }
    torch::nn::Linear layer;
    at::Tensor transposed;
  };
  const std::vector<std::shared_ptr<ViewImpl>> nets{
      deferred_init([] { return std::make_shared<ViewImpl>(); }, kEveryTensor),
      deferred_init([] { return std::make_shared<ViewImpl>(); }, kEveryTensor)};
  CHECK_THAT(error_of<std::logic_error>([&] {
               nets[0]->forward(at::ones({1, 4}));
             }),
             ContainsSubstring("the parameter layer.weight"));
}

TEST_CASE("DistributedDataParallel: a model of deferred_init() has to be materialized first") {
  std::vector<DrawnNet> nets = deferred({3, 4});
  const DrawnNet eager = drawn(3);
  run_ranks(2, [&](const GroupHandle& group) {
    DrawnNet net = placed(nets[static_cast<size_t>(group.rank())]);
    RANK_CHECK_THAT(error_of<std::logic_error>([&] { DistributedDataParallel<DrawnNet>(net, group); }),
                    ContainsSubstring("materialize()"));
    materialize(*net);
    DistributedDataParallel<DrawnNet> model(net, group);
    RANK_CHECK(at::equal(net->query.cpu(), eager->query));
  });
}

}  // namespace
}  // namespace ddp

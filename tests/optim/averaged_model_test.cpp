// Averaged models over ranks, in checkpoints, and of models of every kind.
#include <ATen/CPUGeneratorImpl.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/serialize.h>

#include <limits>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <ddprun/checkpoint/checkpoint.h>
#include <ddprun/checkpoint/checkpoint_manager.h>
#include <ddprun/comm/collectives.h>
#include <ddprun/ddp/distributed_data_parallel.h>
#include <ddprun/optim/averaged_model.h>
#include <ddprun/syncbn/conversion.h>
#include <ddprun/syncbn/update_bn.h>

#include "tests/support/catch.h"
#include "tests/support/rank_checks.h"
#include "tests/support/ranks.h"
#include "tests/support/temporary_folder.h"

namespace ddp {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;
using optim::AveragedModel;
using test::run_ranks;
using torch::nn::BatchNorm1d;
using torch::nn::Linear;
using torch::nn::Sequential;

struct Sample {
  at::Tensor data, target;
};

Sequential new_net() {
  return Sequential(Linear(3, 8), BatchNorm1d(8), Linear(8, 1));
}

at::Tensor numbers(int64_t rows, int seed) {
  auto generator = at::detail::createCPUGenerator(static_cast<uint64_t>(seed));
  return at::randn({rows, 3}, generator);
}

bool same_bits(const torch::nn::Module& a, const torch::nn::Module& b) {
  const auto as = a.named_parameters(), bs = b.named_parameters();
  for (size_t i = 0; i < as.size(); ++i) {
    if (!as[i].value().equal(bs[i].value())) return false;
  }
  return as.size() == bs.size();
}

// Ranks are threads here, which share LibTorch's generator.
void set_parameters(torch::nn::Module& module) {
  const at::NoGradGuard no_grad;
  auto generator = at::detail::createCPUGenerator(1);
  for (auto& parameter : module.parameters()) parameter.copy_(at::randn(parameter.sizes(), generator));
}

std::string saved(const torch::nn::Module& module) {
  torch::serialize::OutputArchive archive;
  module.save(archive);
  std::ostringstream out;
  archive.save_to(out);
  return out.str();
}

void load(torch::nn::Module& module, const std::string& bytes) {
  std::istringstream in(bytes);
  torch::serialize::InputArchive archive;
  archive.load_from(in);
  module.load(archive);
}

// Not Cloneable: its members are made in the constructor.
struct PlainImpl : torch::nn::Module {
  explicit PlainImpl(int64_t width = 4) : linear(register_module("linear", Linear(2, width))) {}
  torch::Tensor forward(const torch::Tensor& x) { return linear(x); }
  Linear linear;
};
TORCH_MODULE(Plain);

struct Tied : torch::nn::Module {
  Tied() {
    register_module("first", layer);
    register_module("second", layer);
    counts = register_buffer("counts", at::zeros({2}));
    register_buffer("counts_again", counts);
  }
  Linear layer{2, 2};
  at::Tensor counts;
};

TEST_CASE("AveragedModel: tied weights and buffers are averaged once, as Python's") {
  const auto net = std::make_shared<Tied>();
  const auto copy = [] { return std::make_shared<Tied>(); };
  const bool multi = GENERATE(false, true);
  INFO("multi " << multi);
  optim::AveragedModelOptions options{.use_buffers = true, .make_copy = copy};
  if (multi) {
    options.multi_avg_fn = optim::get_ema_multi_avg_fn(0.5);
  } else {
    options.avg_fn = optim::get_ema_avg_fn(0.5);
  }
  AveragedModel<Tied> average(net, options);
  const at::NoGradGuard no_grad;
  for (const double value : {0.0, 4.0, 8.0}) {
    net->layer->weight.fill_(value);
    net->counts.fill_(value);
    average->update_parameters(*net);
  }
  // 0, then (0 + 4) / 2, then (2 + 8) / 2.
  CHECK(average->module()->layer->weight.equal(at::full({2, 2}, 5.0)));
  CHECK(average->module()->counts.equal(at::full({2}, 5.0)));
}

TEST_CASE("AveragedModel: starts as the model and follows it") {
  auto net = new_net();
  net[0]->as<Linear>()->weight.requires_grad_(false);
  AveragedModel ema(net, {.avg_fn = optim::get_ema_avg_fn(0.75)});
  CHECK(ema->n_averaged() == 0);
  CHECK(same_bits(*ema->module(), *net));
  CHECK_FALSE(ema->module()->parameters()[0].requires_grad());
  CHECK(ema->module()->parameters()[1].requires_grad());
  CHECK(ema->named_parameters().contains("module.0.weight"));
  const at::NoGradGuard no_grad;
  net[2]->as<Linear>()->bias.fill_(4);
  ema->update_parameters(net);
  net[2]->as<Linear>()->bias.fill_(8);
  ema->update_parameters(net);
  CHECK(ema->n_averaged() == 2);
  CHECK(ema->module()->parameters().back().item<float>() == 0.75F * 4 + 0.25F * 8);
  CHECK(net->parameters().back().item<float>() == 8);
}

TEST_CASE("AveragedModel: a function of the user's own decides") {
  auto net = new_net();
  const auto greatest = [](const at::Tensor& averaged, const at::Tensor& current, int64_t /*n*/) {
    return averaged.maximum(current);
  };
  AveragedModel model(net, {.avg_fn = greatest});
  const at::NoGradGuard no_grad;
  for (const float value : {1.F, 5.F, 3.F}) {
    net->parameters().back().fill_(value);
    model->update_parameters(net);
  }
  CHECK(model->module()->parameters().back().item<float>() == 5);
}

TEST_CASE("AveragedModel: making one draws nothing from the program's generator") {
  torch::manual_seed(5);
  auto net = new_net();
  const auto expected = torch::rand(4);
  torch::manual_seed(5);
  net = new_net();
  const AveragedModel ema(net);
  CHECK(torch::rand(4).equal(expected));
}

TEST_CASE("AveragedModel: a model that cannot be cloned is made by the user's function") {
  Plain net;
  CHECK_THROWS_MATCHES(AveragedModel(net), std::invalid_argument,
                       MessageMatches(ContainsSubstring("AveragedModelOptions::make_copy")));
  AveragedModel ema(net, {.make_copy = [] { return std::make_shared<PlainImpl>(); }});
  CHECK(same_bits(*ema->module(), *net));
  CHECK(ema(torch::ones({1, 2})).equal(net(torch::ones({1, 2}))));
  CHECK_THROWS_AS(AveragedModel(net, {.make_copy = [] { return std::make_shared<PlainImpl>(5); }}),
                  std::invalid_argument);
  CHECK_THROWS_AS(AveragedModel(net, {.make_copy = [&] { return net.ptr(); }}), std::invalid_argument);
  CHECK_THROWS_AS(AveragedModel(net, {.make_copy = [] { return new_net().ptr(); }}), std::invalid_argument);
}

TEST_CASE("AveragedModel: cannot be cloned, but the model in it can") {
  auto net = new_net();
  AveragedModel ema(net);
  CHECK_THROWS_MATCHES(
      ema->clone(), std::logic_error,
      MessageMatches(ContainsSubstring("AveragedModel is a wrapper and cannot be cloned: clone the model in it, "
                                       "wrapper->module()->clone()")));
  CHECK(same_bits(*ema->module()->clone(), *net));
  AveragedModel<Plain> of_plain(Plain(), {.make_copy = [] { return std::make_shared<PlainImpl>(); }});
  CHECK_THROWS_MATCHES(
      (AveragedModel<AveragedModel<Plain>>(of_plain)), std::logic_error,
      MessageMatches(ContainsSubstring("AveragedModel is a wrapper") && !ContainsSubstring("torch::nn::Cloneable")));
}

TEST_CASE("AveragedModel: what cannot be averaged is refused and changes nothing") {
  auto net = new_net();
  AveragedModel ema(net);
  ema->update_parameters(net);
  Plain other;
  Sequential wider(Linear(3, 9), BatchNorm1d(9), Linear(9, 1));
  const auto before = saved(*ema);
  CHECK_THROWS_MATCHES(ema->update_parameters(other), std::invalid_argument,
                       MessageMatches(ContainsSubstring("expected the model that was copied")));
  CHECK_THROWS_AS(ema->update_parameters(wider), std::invalid_argument);
  CHECK(saved(*ema) == before);
  CHECK_THROWS_AS(optim::get_ema_avg_fn(1.5), std::invalid_argument);
  CHECK_THROWS_AS(optim::get_ema_multi_avg_fn(std::numeric_limits<double>::quiet_NaN()), std::invalid_argument);
  CHECK_THROWS_AS(
      AveragedModel(net, {.avg_fn = optim::get_swa_avg_fn(), .multi_avg_fn = optim::get_swa_multi_avg_fn()}),
      std::invalid_argument);
  CHECK_THROWS_AS(AveragedModel(Plain(nullptr)), std::invalid_argument);
}

TEST_CASE("AveragedModel: is saved and loaded whole or not at all") {
  auto net = new_net();
  AveragedModel ema(net), other(new_net());
  for (int i = 0; i < 3; ++i) ema->update_parameters(net);
  load(*other, saved(*ema));
  CHECK(same_bits(*other, *ema));
  CHECK(other->n_averaged() == 3);
  AveragedModel wider(Sequential(Linear(3, 9), BatchNorm1d(9), Linear(9, 1)));
  const auto before = saved(*wider);
  CHECK_THROWS(load(*wider, saved(*ema)));
  CHECK(saved(*wider) == before);
}

TEST_CASE("AveragedModel: a run goes on from its checkpoint with the same average") {
  const test::TemporaryFolder folder;
  const auto train = [&](const GroupHandle& group, int64_t until) {
    auto net = new_net();
    set_parameters(*net);
    DistributedDataParallel model(net, group);
    AveragedModel ema(net, {.avg_fn = optim::get_ema_avg_fn(0.9)});
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    CheckpointManager checkpoints(folder.path() / "run", group);
    const TrainingState state{.model = net, .optimizer = optimizer, .shared = {{"ema", *ema}}};
    const auto found = checkpoints.load_latest(state);
    for (int64_t step = found ? found->step : 0; step < until; ++step) {
      optimizer.zero_grad();
      model(numbers(4, static_cast<int>(2 * step) + group.rank())).pow(2).mean().backward();
      optimizer.step();
      ema->update_parameters(model);
      if (step + 1 == until) checkpoints.save(until, state);
    }
    std::vector<at::Tensor> weights;
    for (const auto& parameter : ema->parameters()) weights.push_back(parameter.detach().clone());
    return weights;
  };
  run_ranks(2, [&](const GroupHandle& group) {
    train(group, 3);
    const auto resumed = train(group, 6);
    if (group.rank() == 0) std::filesystem::remove_all(folder.path() / "run");
    barrier(group);
    const auto whole = train(group, 6);
    for (size_t i = 0; i < whole.size(); ++i) {
      RANK_CHECK(resumed[i].equal(whole[i]));
      RANK_CHECK(all_gather(whole[i], group)[0].equal(whole[i]));  // no communication was needed for it
    }
  });
}

TEST_CASE("AveragedModel: its checkpoint is a model's") {
  const test::TemporaryFolder folder;
  run_ranks(1, [&](const GroupHandle& group) {
    auto net = new_net();
    AveragedModel ema(net), other(new_net());
    ema->update_parameters(net);
    save_checkpoint(folder.path() / "ema.safetensors", {.model = ema}, group);
    load_checkpoint(folder.path() / "ema.safetensors", {.model = other}, group);
    RANK_CHECK(same_bits(*other, *ema));
    RANK_CHECK(other->n_averaged() == 1);
    auto plain = new_net();
    save_checkpoint(folder.path() / "net.safetensors", {.model = ema->module()}, group);
    load_checkpoint(folder.path() / "net.safetensors", {.model = plain}, group);
    RANK_CHECK(same_bits(*plain, *net));
  });
}

TEST_CASE("update_bn: over ranks it is one process's over all batches") {
  const bool is_converted = GENERATE(false, true);
  torch::manual_seed(3);
  const auto net = new_net();
  AveragedModel expected(net);
  const int per_rank = 3;
  // SyncBatchNorm's ranks need batches of equal number; others may differ: rank 2 has none.
  const auto share = [&](int rank) {
    std::vector<Sample> batches;
    const int count = is_converted ? per_rank : rank == 2 ? 0 : per_rank + rank;
    for (int i = 0; i < count; ++i) batches.push_back({numbers(4, 100 * rank + i), {}});
    return batches;
  };
  run_ranks(1, [&](const GroupHandle& group) {
    std::vector<Sample> all;
    for (int rank = 0; rank < 3; ++rank) {
      for (const auto& batch : share(rank)) all.push_back(batch);
    }
    update_bn(all, expected, group);
  });
  run_ranks(3, [&](const GroupHandle& group) {
    auto mine = new_net();
    mine->eval();
    mine[1]->as<BatchNorm1d>()->train();
    {
      const at::NoGradGuard no_grad;
      for (size_t i = 0; i < mine->parameters().size(); ++i) mine->parameters()[i].copy_(net->parameters()[i]);
    }
    if (is_converted) convert_sync_batchnorm(mine, group);
    update_bn(share(group.rank()), mine, group);
    const auto& norm = *mine[1]->as<BatchNorm1d>();
    const auto& wanted = *expected->module()->ptr(1)->as<BatchNorm1d>();
    RANK_CHECK(at::allclose(norm.running_mean, wanted.running_mean, 1e-5, 1e-6));
    if (!is_converted) RANK_CHECK(at::allclose(norm.running_var, wanted.running_var, 1e-5, 1e-6));
    RANK_CHECK(norm.options.momentum() == 0.1);
    RANK_CHECK(!mine->is_training());
    RANK_CHECK(norm.is_training());
    RANK_CHECK(all_gather(norm.running_var, group)[0].equal(norm.running_var));
    RANK_CHECK(!norm.running_mean.equal(at::zeros({8})));
  });
}

TEST_CASE("update_bn: a model without batch norm is not called") {
  run_ranks(1, [&](const GroupHandle& group) {
    Plain net;
    update_bn(std::vector<at::Tensor>{at::ones({1, 77})}, net, group);  // does not even fit
    RANK_CHECK(net->is_training());
  });
}

}  // namespace
}  // namespace ddp

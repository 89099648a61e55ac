// Training under amp on several ranks, and what goes on from a checkpoint.
#include <ATen/ops/cat.h>
#include <ATen/ops/randn.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>
#include <torch/serialize/archive.h>

#include <limits>
#include <memory>
#include <mutex>
#include <sstream>
#include <vector>

#include <ddprun/amp/amp.h>
#include <ddprun/checkpoint/checkpoint_manager.h>
#include <ddprun/comm/collectives.h>
#include <ddprun/ddp/distributed_data_parallel.h>
#include <ddprun/optim/optimizers.h>

#include "tests/support/catch.h"
#include "tests/support/errors.h"
#include "tests/support/matchers.h"
#include "tests/support/placement.h"
#include "tests/support/rank_checks.h"
#include "tests/support/ranks.h"
#include "tests/support/temporary_folder.h"

namespace ddp::amp {
namespace {

using at::kBFloat16;
using at::kFloat;
using at::kHalf;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;
using test::ElementsAre;
using test::error_of;
using test::here;
using test::run_ranks;
using test::Wire;

// --- Ranks

struct NetImpl : torch::nn::Module {
  explicit NetImpl(uint64_t seed) {
    register_module("first", first);
    register_module("norm", norm);
    register_module("second", second);
    const at::NoGradGuard no_grad;
    for (at::Tensor& parameter : parameters()) {
      parameter.copy_(at::randn(parameter.sizes(), at::detail::createCPUGenerator(seed++)) * 0.3);
    }
  }
  at::Tensor forward(const at::Tensor& x) { return second(torch::relu(norm(first(x)))); }
  torch::nn::Linear first{6, 8};
  torch::nn::BatchNorm1d norm{8};
  torch::nn::Linear second{8, 1};
};
TORCH_MODULE(Net);

Net make_net(uint64_t seed) {
  Net net(nullptr);
  {
    static std::mutex mutex;  // modules draw their first weights from the generator that all ranks, threads here, share
    const std::lock_guard lock(mutex);
    net = Net(seed);
  }
  return test::placed(net);
}

at::Tensor inputs(uint64_t seed) {
  return here(at::randn({8, 6}, at::detail::createCPUGenerator(seed)));
}

at::Tensor all_values(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> values;
  for (const at::Tensor& tensor : tensors) values.push_back(tensor.detach().to(kFloat).flatten());
  return at::cat(values);
}

void expect_equal_on_all(const std::vector<at::Tensor>& tensors, const GroupHandle& group) {
  for (const at::Tensor& tensor : tensors) {
    const at::Tensor all = all_gather(tensor.detach().contiguous(), group);
    for (int rank = 1; rank < group.size(); ++rank) RANK_CHECK(torch::equal(all[rank], all[0]));
  }
}

template <typename Optimizer, typename Options>
void train_on_ranks(const GroupHandle& group, const char* level, at::ScalarType dtype) {
  // Each rank begins with other weights: masters have to follow what DistributedDataParallel takes from rank 0.
  Net net = make_net(100 * static_cast<uint64_t>(group.rank()));
  Optimizer optimizer(net->parameters(), Options(2.0));
  Amp amp = initialize(net, optimizer, {.opt_level = level, .dtype = dtype, .loss_scale = "dynamic", .group = group});
  DistributedDataParallel model(amp.model(net), group);
  RANK_CHECK_THAT(error_of([&] { initialize(net, {}, {.group = group}); }),
                  StartsWith(who(group.info()) + ": amp.initialize: Incoming model is an instance of") &&
                      ContainsSubstring("convert_sync_batchnorm()"));
  std::vector<double> scales;
  for (uint64_t step = 0; step < 6; ++step) {
    optimizer.zero_grad();
    at::Tensor x = inputs(10 * step + static_cast<uint64_t>(group.rank()));
    if (step == 3 && group.rank() == 1) x = x * std::numeric_limits<float>::infinity();
    const at::Tensor before = all_values(master_params(optimizer));
    at::Tensor loss;
    {
      const CastScope autocast = amp.autocast();
      loss = model(x).to(kFloat).square().mean() / 16;  // in half it would overflow when scaled
    }
    amp.scale_loss(loss, optimizer).backward();
    amp.step(optimizer);
    // Step 0 also takes over what DistributedDataParallel has sent.
    const bool same = step > 0 && torch::equal(all_values(master_params(optimizer)), before);
    RANK_INFO(level << " " << c10::toString(dtype) << ", step " << step);
    RANK_CHECK(same == (step == 3));
    scales.push_back(amp.loss_scale());
    expect_equal_on_all(net->parameters(), group);
    expect_equal_on_all(master_params(optimizer), group);
  }
  RANK_INFO(level << " " << c10::toString(dtype));
  RANK_CHECK_THAT(scales, ElementsAre(65536, 65536, 65536, 32768, 32768, 32768));
}

TEST_CASE("Ranks: stay equal and skip together at every level") {
  for (const char* level : {"O0", "O1", "O2", "O3"}) {
    for (const auto dtype : {kHalf, kBFloat16}) {
      const auto wire = dtype == kHalf ? Wire::kGloo : Wire::kLate;
      run_ranks(2,
                [&](const GroupHandle& group) {
                  train_on_ranks<torch::optim::SGD, torch::optim::SGDOptions>(group, level, dtype);
                  train_on_ranks<optim::SGD, optim::SGDOptions>(group, level, dtype);
                },
                {.wire = wire});
    }
  }
}

TEST_CASE("Ranks: accumulate without communication when unscaling is delayed") {
  run_ranks(2, [](const GroupHandle& group) {
    const auto train = [&](bool accumulate) {
      Net net = make_net(1);
      net->norm->eval();
      torch::optim::SGD optimizer(net->parameters(), 0.05);
      Amp amp = initialize(net, optimizer, {.opt_level = "O2", .loss_scale = 1024.0});
      auto inner = amp.model(net);
      DistributedDataParallel model(inner, group);
      for (uint64_t step = 0; step < 3; ++step) {
        optimizer.zero_grad();
        const at::Tensor x = inputs(10 * step + static_cast<uint64_t>(group.rank()));
        if (accumulate) {
          const auto parts = x.chunk(2);
          {
            const auto local = model->no_sync();
            amp.scale_loss(model(parts[0]).sum() / 8, optimizer, {.delay_unscale = true}).backward();
          }
          amp.scale_loss(model(parts[1]).sum() / 8, optimizer).backward();
        } else {
          amp.scale_loss(model(x).sum() / 8, optimizer).backward();
        }
        amp.step(optimizer);
      }
      expect_equal_on_all(master_params(optimizer), group);
      return master_params(optimizer);
    };
    const auto whole = train(false), parts = train(true);
    for (size_t i = 0; i < whole.size(); ++i) {
      RANK_INFO(i << "\n" << whole[i] << parts[i]);
      RANK_CHECK(torch::allclose(whole[i], parts[i], 1e-2, 2e-3));
    }
  });
}

// --- Checkpoints

template <typename Optimizer>
struct SavedRun {
  SavedRun(const GroupHandle& group, uint64_t seed, const char* level)
      : net(make_net(seed)),
        optimizer(net->parameters(), 0.01),
        amp(initialize(net, optimizer, {.opt_level = level, .group = group})),
        state(amp.fp32_state(net)) {}
  TrainingState training_state() { return {.model = *state, .optimizer = optimizer, .scaler = amp}; }
  void train(uint64_t first, uint64_t count) {
    auto model = amp.model(net);
    for (uint64_t step = first; step < first + count; ++step) {
      optimizer.zero_grad();
      amp.scale_loss(model(inputs(step)).square().mean(), optimizer).backward();
      amp.step(optimizer);
    }
  }
  Net net;
  Optimizer optimizer;
  Amp amp;
  std::shared_ptr<torch::nn::Module> state;
};

TEST_CASE("Checkpoints: a run with masters goes on with the same bits") {
  run_ranks(1, [](const GroupHandle& group) {
    const test::TemporaryFolder folder;
    SavedRun<torch::optim::Adam> run(group, 1, "O2");
    run.train(0, 5);
    CheckpointManager manager(folder / "run", group);
    manager.save(5, run.training_state());
    const LossScalerState saved_scale = run.amp.state_dict().at("loss_scaler0");
    RANK_CHECK(saved_scale.unskipped > 0);
    const at::Tensor saved = master_params(run.optimizer)[0].detach().clone();
    run.train(5, 5);
    SavedRun<torch::optim::Adam> resumed(group, 77, "O2");
    manager.load_latest(resumed.training_state());
    RANK_CHECK(resumed.amp.state_dict().at("loss_scaler0").unskipped == saved_scale.unskipped);
    RANK_CHECK(resumed.amp.loss_scale() == saved_scale.loss_scale);
    resumed.train(5, 5);
    const auto ours = resumed.net->named_parameters(), expected = run.net->named_parameters();
    for (const auto& item : expected) {
      RANK_INFO(item.key());
      RANK_CHECK(torch::equal(ours[item.key()], item.value()));
    }
    RANK_CHECK(torch::equal(resumed.net->norm->running_mean, run.net->norm->running_mean));

    // The file is an ordinary one in float32: a run at another level takes it.
    SavedRun<torch::optim::Adam> plain(group, 78, "O0");
    manager.load_latest(plain.training_state());
    RANK_CHECK(plain.net->first->weight.scalar_type() == kFloat);
    RANK_CHECK(torch::equal(plain.net->first->weight, saved));
    plain.train(5, 1);
  });
}

TEST_CASE("Checkpoints: fp32 state has the model's names and no 16 bits") {
  Net net = make_net(1);
  Amp amp = initialize(net, {}, {.opt_level = "O3"});
  const auto state = amp.fp32_state(net);
  const auto names = net->named_parameters().keys();
  CHECK(state->named_parameters().keys() == names);
  CHECK(state->named_buffers().keys() == net->named_buffers().keys());
  for (const auto& item : state->named_parameters()) CHECK(item.value().scalar_type() == kFloat);
}

TEST_CASE("Checkpoints: apex's state comes back and others are refused") {
  auto net = test::placed(torch::nn::Linear(2, 1));
  torch::optim::SGD optimizer(net->parameters(), 0.5);
  const Amp amp = initialize(net, optimizer, {.num_losses = 2});
  amp.load_state_dict({{"loss_scaler0", {.loss_scale = 8, .unskipped = 3}}, {"loss_scaler1", {.loss_scale = 4}}});
  torch::serialize::OutputArchive out;
  amp.save(out);
  std::stringstream stream;
  out.save_to(stream);

  auto other = test::placed(torch::nn::Linear(2, 1));
  torch::optim::SGD other_optimizer(other->parameters(), 0.5);
  Amp loaded = initialize(other, other_optimizer, {.num_losses = 2});
  torch::serialize::InputArchive in;
  in.load_from(stream);
  loaded.load(in);
  CHECK(loaded.state_dict().at("loss_scaler0").unskipped == 3);
  CHECK(loaded.loss_scale(1) == 4);
  CHECK_THROWS_WITH(
      loaded.load_state_dict({{"nonsense", {}}}),
      ContainsSubstring("Error(s) in loading state_dict. Unexpected key(s) in state_dict: \"nonsense\". "));
  CHECK_THROWS_WITH(loaded.load_state_dict({{"loss_scaler0", {.loss_scale = std::numeric_limits<float>::infinity()}}}),
                    ContainsSubstring("out of range"));
  CHECK(loaded.loss_scale(0) == 8);
}

}  // namespace
}  // namespace ddp::amp

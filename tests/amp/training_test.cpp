// Training under amp: masters, loss scales, overflows, accumulation, ranks, checkpoints.
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>
#include <torch/serialize/archive.h>

#include <cmath>
#include <limits>
#include <memory>
#include <mutex>
#include <sstream>
#include <vector>

#include <ddprun/amp/amp.h>
#include <ddprun/checkpoint/checkpoint_manager.h>
#include <ddprun/comm/collectives.h>
#include <ddprun/ddp/distributed_data_parallel.h>
#include <ddprun/optim/sgd.h>

#include "tests/amp/waits.h"
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
using Catch::Matchers::WithinAbs;
using test::ElementsAre;
using test::error_of;
using test::here;
using test::HostReads;
using test::run_ranks;
using test::Wire;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// One weight, of which the output is a multiple.
struct ScaleImpl : torch::nn::Module {
  explicit ScaleImpl(double value = 1) : weight(register_parameter("weight", at::full({1}, value))) {}
  at::Tensor forward(const at::Tensor& x) { return x * weight; }
  at::Tensor weight;
};
TORCH_MODULE(Scale);

at::Tensor number(double value) {
  return here(at::full({1}, value));
}
// With the first scale of 65536, a gradient of 1 at the output is more than half precision holds.
at::Tensor loss_of(const at::Tensor& y) {
  return y.sum() / 4;
}
double value_of(const at::Tensor& tensor) {
  return tensor.item<double>();
}

TEST_CASE("Masters: keep what 16 bits cannot hold") {
  Scale net = test::placed(Scale());
  torch::optim::SGD optimizer(net->parameters(), 4e-4);
  Amp amp = initialize(net, optimizer, {.opt_level = "O2"});
  auto model = amp.model(net);
  for (int step = 0; step < 8; ++step) {
    optimizer.zero_grad();
    amp.scale_loss(loss_of(model(number(1))), optimizer).backward();
    amp.step(optimizer);
  }
  UNSCOPED_INFO("each step is lost in half precision");
  CHECK_THAT(value_of(master_params(optimizer)[0]), WithinAbs(1 - 8e-4, 1e-6));
  CHECK(value_of(net->weight) == value_of(here(at::full({1}, 1 - 8e-4)).to(kHalf)));
  CHECK(net->weight.scalar_type() == kHalf);
}

TEST_CASE("Masters: take over the state that the optimizer has") {
  const auto train = [](const char* level) {
    Scale net = test::placed(Scale());
    torch::optim::Adam optimizer(net->parameters(), torch::optim::AdamOptions(0.1));
    net(number(1)).sum().backward();
    optimizer.step();
    Amp amp = initialize(net, optimizer, {.opt_level = level});
    auto model = amp.model(net);
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      amp.scale_loss(loss_of(model(number(1))), optimizer).backward();
      amp.step(optimizer);
    }
    CHECK(optimizer.state().size() == 1U);
    return value_of(master_params(optimizer)[0]);
  };
  INFO("the first step rounded to half");
  CHECK_THAT(train("O2"), WithinAbs(train("O0"), 1e-3));
}

TEST_CASE("Masters: gradients are clipped there") {
  Scale net = test::placed(Scale());
  torch::optim::SGD optimizer(net->parameters(), 4.0);
  Amp amp = initialize(net, optimizer, {.opt_level = "O2", .loss_scale = 8.0});
  auto model = amp.model(net);
  amp.scale_loss(loss_of(model(number(4))), optimizer).backward();
  UNSCOPED_INFO("the model's gradient stays scaled");
  CHECK(value_of(net->weight.grad()) == 8);
  CHECK(torch::nn::utils::clip_grad_norm_(master_params(optimizer), 0.125) == 1);
  amp.step(optimizer);
  CHECK_THAT(value_of(net->weight), WithinAbs(0.5, 1e-3));
  CHECK_FALSE(master_params(optimizer)[0].grad().defined());
}

TEST_CASE("Masters: what is written to them reaches the model at its next forward") {
  Scale net = test::placed(Scale());
  torch::optim::SGD optimizer(net->parameters(), 4.0);
  Amp amp = initialize(net, optimizer, {.opt_level = "O2"});
  auto model = amp.model(net);
  amp.scale_loss(loss_of(model(number(1))), optimizer).backward();
  amp.step(optimizer);
  const at::NoGradGuard no_grad;
  master_params(optimizer)[0].fill_(2);
  CHECK(value_of(model(number(3))) == 6);
}

TEST_CASE("LossScale: overflows skip the step and halve the scale down to the floor") {
  for (const char* level : {"O1", "O2"}) {
    Scale net = test::placed(Scale());
    torch::optim::SGD optimizer(net->parameters(), 4.0);
    Amp amp = initialize(net, optimizer, {.opt_level = level, .min_loss_scale = 20000.0});
    auto model = amp.model(net);
    std::vector<double> scales;
    for (const float x : {0.1F, kInfinity, 0.1F, kInfinity, kInfinity}) {
      optimizer.zero_grad();
      const double before = value_of(net->weight);
      amp.scale_loss(loss_of(model(number(x))), optimizer).backward();
      amp.step(optimizer);
      INFO(level);
      CHECK((value_of(net->weight) == before) == (x == kInfinity));
      scales.push_back(amp.loss_scale());
    }
    UNSCOPED_INFO(level);
    CHECK_THAT(scales, ElementsAre(65536, 32768, 32768, 20000, 20000));
    CHECK(amp.state_dict().at("loss_scaler0").unskipped == 0);
  }
}

TEST_CASE("LossScale: an overflow is not forgotten when the optimizer refuses the step") {
  for (const char* level : {"O1", "O2"}) {
    Scale net = test::placed(Scale());
    optim::SGD optimizer(net->parameters(), 4.0);
    Amp amp = initialize(net, optimizer, {.opt_level = level});
    auto model = amp.model(net);
    amp.scale_loss(loss_of(model(number(kInfinity))), optimizer).backward();
    optimizer.param_groups()[0].options().set_lr(-1);
    CHECK_THROWS_AS(amp.step(optimizer), std::invalid_argument);
    optimizer.param_groups()[0].options().set_lr(4);
    amp.step(optimizer);
    INFO(level);
    CHECK(value_of(net->weight) == 1);
  }
}

TEST_CASE("LossScale: doubles after 2000 good steps up to the ceiling") {
  Scale net = test::placed(Scale());
  torch::optim::SGD optimizer(net->parameters(), 0.0);
  Amp amp = initialize(net, optimizer, {.opt_level = "O1", .max_loss_scale = 3e5});
  auto model = amp.model(net);
  const auto step = [&] {
    optimizer.zero_grad();
    amp.scale_loss(loss_of(model(number(1))), optimizer).backward();
    amp.step(optimizer);
    return amp.loss_scale();
  };
  for (int i = 0; i < 1999; ++i) step();
  CHECK(amp.loss_scale() == 65536);
  CHECK(amp.state_dict().at("loss_scaler0").unskipped == 1999);
  CHECK(step() == 131072);
  amp.load_state_dict({{"loss_scaler0", {.loss_scale = 262144, .unskipped = 1999}}});
  CHECK(step() == 3e5);
  CHECK(amp.state_dict().at("loss_scaler0").unskipped == 0);
}

TEST_CASE("LossScale: a static one neither skips nor changes") {
  Scale net = test::placed(Scale());
  torch::optim::SGD optimizer(net->parameters(), 4.0);
  Amp amp = initialize(net, optimizer, {.opt_level = "O2", .loss_scale = "128.0"});
  auto model = amp.model(net);
  {
    const ScaledLoss scaled = amp.scale_loss(loss_of(model(number(2))), optimizer);
    CHECK(value_of(scaled) == 64);
    scaled.backward();
  }
  CHECK(value_of(master_params(optimizer)[0].grad()) == 0.5);
  amp.step(optimizer);
  amp.scale_loss(loss_of(model(number(kInfinity))), optimizer).backward();
  amp.step(optimizer);
  CHECK_FALSE(std::isfinite(value_of(net->weight)));
  CHECK(amp.loss_scale() == 128);
}

TEST_CASE("LossScale: several losses have their own and an overflow of one skips its optimizers only") {
  Scale first = test::placed(Scale());
  Scale second = test::placed(Scale());
  torch::optim::SGD one(first->parameters(), 4.0);
  optim::SGD two(second->parameters(), optim::SGDOptions(4.0));
  Amp amp = initialize({first, second}, {one, two}, {.opt_level = "O2", .num_losses = 3});
  auto model_one = amp.model(first);
  auto model_two = amp.model(second);
  amp.scale_loss(loss_of(model_one(number(0.25))), one, {.loss_id = 0}).backward();
  amp.scale_loss(loss_of(model_two(number(0.25))), two, {.loss_id = 1}).backward();
  amp.scale_loss(loss_of(model_two(number(kInfinity))), two, {.loss_id = 2}).backward();
  amp.scale_loss(loss_of(model_one(number(0.25)) + model_two(number(0.25))), {one, two}, {.loss_id = 0}).backward();
  amp.step(one);
  amp.step(two);
  CHECK(value_of(first->weight) == 0.5);
  UNSCOPED_INFO("one of its losses had overflowed");
  CHECK(value_of(second->weight) == 1);
  CHECK(amp.loss_scale(0) == 65536);
  CHECK(amp.loss_scale(1) == 65536);
  CHECK(amp.loss_scale(2) == 32768);
  amp.scale_loss(loss_of(model_two(number(0.25))), two, {.loss_id = 1}).backward();
  amp.step(two);
  INFO("one step is skipped, not two");
  CHECK(value_of(second->weight) == 0.75);
}

TEST_CASE("LossScale: a delayed check counts at the next one") {
  Scale net = test::placed(Scale());
  torch::optim::SGD optimizer(net->parameters(), 4.0);
  Amp amp = initialize(net, optimizer, {.opt_level = "O2"});
  auto model = amp.model(net);
  amp.scale_loss(loss_of(model(number(kInfinity))), optimizer, {.delay_overflow_check = true}).backward();
  CHECK(amp.loss_scale() == 65536);
  amp.scale_loss(loss_of(model(number(0.25))), optimizer).backward();
  CHECK(amp.loss_scale() == 32768);
  amp.step(optimizer);
  CHECK(value_of(net->weight) == 1);
}

TEST_CASE("Accumulation: gradients add up in the masters or scaled in the model") {
  for (const char* level : {"O0", "O1", "O2", "O3"}) {
    for (const bool delay : {false, true}) {
      Scale net = test::placed(Scale());
      torch::optim::SGD optimizer(net->parameters(), 4.0);
      Amp amp = initialize(net, optimizer, {.opt_level = level, .loss_scale = 1024.0});
      auto model = amp.model(net);
      for (int step = 0; step < 2; ++step) {
        optimizer.zero_grad();
        for (int pass = 0; pass < 3; ++pass) {
          const bool last = pass == 2;
          amp.scale_loss(loss_of(model(number(0.125))), optimizer, {.delay_unscale = delay && !last}).backward();
          if (delay && !last) {
            CHECK_THROWS_WITH(amp.step(optimizer), ContainsSubstring("are still scaled"));
          }
        }
        amp.step(optimizer);
      }
      INFO(level << ", delayed: " << delay);
      CHECK(value_of(net->weight) == 0.25);
    }
  }
}

TEST_CASE("Accumulation: zero_grad forgets scaled gradients and overflows too") {
  Scale net = test::placed(Scale());
  torch::optim::SGD optimizer(net->parameters(), 4.0);
  Amp amp = initialize(net, optimizer, {.opt_level = "O2"});
  auto model = amp.model(net);
  amp.scale_loss(loss_of(model(number(kInfinity))), optimizer).backward();
  amp.scale_loss(loss_of(model(number(1))), optimizer, {.delay_unscale = true}).backward();
  amp.zero_grad(optimizer);
  amp.step(optimizer);
  amp.scale_loss(loss_of(model(number(0.25))), optimizer).backward();
  amp.step(optimizer);
  CHECK(value_of(net->weight) == 0.75);
}

TEST_CASE("ScaledLoss: when backward throws the earlier gradients come back") {
  Scale net = test::placed(Scale());
  torch::optim::SGD optimizer(net->parameters(), 4.0);
  Amp amp = initialize(net, optimizer, {.opt_level = "O1"});
  auto model = amp.model(net);
  amp.scale_loss(loss_of(model(number(0.25))), optimizer).backward();
  const auto fail = [&] {
    const ScaledLoss scaled = amp.scale_loss(loss_of(model(number(1))), optimizer);
    throw std::runtime_error("in the loop");
  };
  CHECK(error_of(fail) == "in the loop");
  CHECK(value_of(net->weight.grad()) == 0.0625);
  amp.step(optimizer);
  CHECK(value_of(net->weight) == 0.75);
}

TEST_CASE("Training: with fused optimizers the host reads nothing") {
  for (const char* level : {"O0", "O1", "O2", "O3"}) {
    for (const bool overflow : {false, true}) {
      const auto reads_of = [&](auto make_optimizer) {
        Scale net = test::placed(Scale());
        auto optimizer = make_optimizer(net->parameters());
        Amp amp = initialize(net, optimizer, {.opt_level = level, .loss_scale = "dynamic"});
        auto model = amp.model(net);
        const HostReads reads;
        for (int step = 0; step < 3; ++step) {
          optimizer.zero_grad();
          amp.scale_loss(loss_of(model(number(overflow ? kInfinity : 0.25))), optimizer).backward();
          amp.step(optimizer);
        }
        const int count = reads.count();
        INFO(level);
        CHECK(value_of(net->weight) == (overflow ? 1 : 0.25));
        return count;
      };
      INFO(level);
      CHECK(reads_of([](auto parameters) { return optim::SGD(parameters, optim::SGDOptions(4.0)); }) == 0);
      CHECK(reads_of([](auto parameters) { return torch::optim::SGD(parameters, 4.0); }) == 3);
    }
  }
}

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
    if (step == 3 && group.rank() == 1) x = x * kInfinity;
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
  CHECK_THROWS_WITH(loaded.load_state_dict({{"loss_scaler0", {.loss_scale = kInfinity}}}),
                    ContainsSubstring("out of range"));
  CHECK(loaded.loss_scale(0) == 8);
}

}  // namespace
}  // namespace ddp::amp

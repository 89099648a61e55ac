// The sharded optimizer gives the unsharded one's bits with a share of its memory; schedules on optimizers and over
// ranks.
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/serialize.h>

#include <filesystem>
#include <memory>
#include <mutex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <ddprun/checkpoint/checkpoint.h>
#include <ddprun/checkpoint/checkpoint_manager.h>
#include <ddprun/comm/collectives.h>
#include <ddprun/ddp/distributed_data_parallel.h>
#include <ddprun/optim/larc.h>
#include <ddprun/optim/lr_scheduler.h>
#include <ddprun/optim/more_optimizers.h>
#include <ddprun/optim/optimizers.h>
#include <ddprun/optim/zero_redundancy_optimizer.h>

#include "tests/optim/numbers.h"
#include "tests/support/catch.h"
#include "tests/support/every_wire.h"
#include "tests/support/matchers.h"
#include "tests/support/placement.h"
#include "tests/support/rank_checks.h"
#include "tests/support/ranks.h"
#include "tests/support/temporary_folder.h"

namespace ddp {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::IsEmpty;
using Catch::Matchers::MessageMatches;
using optim::AdagradOptions;
using optim::AdamWOptions;
using optim::SGDOptions;
using test::ElementsAre;
using test::expect_same_bits;
using test::here;
using test::new_parameters;
using test::run_ranks;
using test::set_gradients;

size_t state_bytes(const optim::FusedOptimizer& optimizer, const std::vector<at::Tensor>& parameters) {
  size_t bytes = 0;
  for (const auto& parameter : parameters) {
    for (const auto& [name, tensor] : optimizer.parameter_state(parameter)) bytes += tensor.nbytes();
  }
  return bytes;
}

void train(torch::optim::Optimizer& optimizer, const std::vector<at::Tensor>& parameters, int first, int steps) {
  for (int step = first; step < first + steps; ++step) {
    set_gradients(parameters, step);
    optimizer.step();
  }
}

TEST_CASE("Partition: is Python's") {
  optim::Partition three(3);
  CHECK_THAT(three.add_group({35, 3, 1, 96, 129}), ElementsAre(ElementsAre(4), ElementsAre(3), ElementsAre(0, 1, 2)));
  CHECK_THAT(three.add_group({10, 10, 10, 0, 200}), ElementsAre(IsEmpty(), ElementsAre(0, 1, 2, 3), ElementsAre(4)));
  CHECK_THAT(three.elements(), ElementsAre(129, 126, 239));
  optim::Partition two(2);
  CHECK_THAT(two.add_group({5, 5, 5, 5, 5}), ElementsAre(ElementsAre(0, 2, 4), ElementsAre(1, 3)));
}

struct Case {
  int size;
  test::Wire wire;
  bool views;
};

class Zero {
 protected:
  template <typename Local, typename Options>
  void expect_unsharded_bits(const Options& options) {
    const auto expected = new_parameters();
    Local unsharded(expected, options);
    train(unsharded, expected, 0, 6);
    unsharded.param_groups()[0].options().set_lr(0.01);
    train(unsharded, expected, 6, 4);
    const size_t whole = state_bytes(unsharded, expected);
    std::atomic<size_t> together = 0;
    const auto body = [&](const GroupHandle& group) {
      const auto parameters = new_parameters();
      ZeroRedundancyOptimizer<Local> optimizer(parameters, options, group,
                                               {.parameters_as_bucket_view = case_.views, .bucket_cap_bytes = 400});
      train(optimizer, parameters, 0, 6);
      optimizer.param_groups()[0].options().set_lr(0.01);
      train(optimizer, parameters, 6, 4);
      expect_same_bits(parameters, expected);
      together += state_bytes(optimizer.local(), parameters);
    };
    run_ranks(case_.size, body, {.wire = case_.wire});
    CHECK(together == whole);
  }

  const Case case_ = GENERATE(values<Case>({{1, test::Wire::kGloo, false},
                                            {2, test::Wire::kGloo, false},
                                            {2, test::Wire::kLate, true},
                                            {3, test::Wire::kGloo, true},
                                            {3, test::Wire::kShm, true},
                                            {3, test::Wire::kLate, false},
                                            {4, test::Wire::kGloo, false}}));
  FIXTURE_INFO(case_.size << " ranks, wire: " << case_.wire << (case_.views ? ", views of buckets" : ""));
};

TEST_CASE_METHOD(Zero, "Zero: has the unsharded optimizer's bits and its state once") {
  expect_unsharded_bits<optim::SGD>(SGDOptions(0.1).momentum(0.9));
  expect_unsharded_bits<optim::AdamW>(AdamWOptions(0.02).amsgrad(true));
  expect_unsharded_bits<optim::Adagrad>(AdagradOptions(0.1).lr_decay(0.1));
  expect_unsharded_bits<optim::Larc<optim::SGD>>(SGDOptions(0.1).momentum(0.9).weight_decay(0.1));
  expect_unsharded_bits<optim::NAdam>(optim::NAdamOptions(0.02));
  expect_unsharded_bits<optim::Adafactor>(optim::AdafactorOptions(0.02));
}

TEST_CASE_METHOD(Zero, "Zero: consolidated state moves to an unsharded optimizer and back") {
  const auto expected = new_parameters();
  optim::AdamW straight(expected, AdamWOptions(0.02));
  train(straight, expected, 0, 9);
  const auto body = [&](const GroupHandle& group) {
    const auto parameters = new_parameters();
    ZeroRedundancyOptimizer<optim::AdamW> sharded(parameters, AdamWOptions(0.02), group,
                                                  {.parameters_as_bucket_view = case_.views});
    train(sharded, parameters, 0, 3);
    const int last = group.size() - 1;
    std::stringstream archive;
    if (group.size() > 1) {  // one rank has it all
      RANK_CHECK_THROWS_MATCHES(torch::save(sharded, archive), std::runtime_error,
                                ContainsSubstring("Optimizer state has not been consolidated on this rank"));
    }
    sharded.consolidate_state(last);
    std::string saved;
    if (group.rank() == last) {
      std::stringstream text;
      torch::save(sharded, text);
      saved = text.str();
    }
    saved = broadcast_string(saved, last, group);

    optim::AdamW unsharded(parameters, AdamWOptions(9));
    std::stringstream(saved).swap(archive);
    torch::load(unsharded, archive);
    train(unsharded, parameters, 3, 3);
    std::stringstream back;
    torch::save(unsharded, back);
    ZeroRedundancyOptimizer<optim::AdamW> again(parameters, AdamWOptions(9), group);
    torch::load(again, back);
    train(again, parameters, 6, 3);
    expect_same_bits(parameters, expected);
    again.consolidate_state(0);
    train(again, parameters, 9, 1);  // what was consolidated is old now
    if (group.size() > 1) RANK_CHECK_THROWS_AS(again.parameter_state(parameters[0]), std::runtime_error);
  };
  run_ranks(case_.size, body, {.wire = case_.wire});
}

TEST_CASE("Zero: collects scalars and factored states of ddprun's own optimizers") {
  const auto expected = new_parameters();
  optim::Adafactor straight(expected);
  train(straight, expected, 0, 3);
  run_ranks(2, [&](const GroupHandle& group) {
    const auto parameters = new_parameters();
    ZeroRedundancyOptimizer<optim::Adafactor> sharded(parameters, optim::AdafactorOptions(), group);
    train(sharded, parameters, 0, 3);
    sharded.consolidate_state(0);
    if (group.rank() != 0) return;
    for (size_t i = 0; i < parameters.size(); ++i) {
      const auto state = sharded.parameter_state(parameters[i]);
      for (const auto& [name, tensor] : straight.parameter_state(expected[i])) {
        RANK_INFO(name << " of parameter " << i);
        RANK_CHECK(state.at(name).equal(tensor.cpu()));
      }
    }
  });
}

TEST_CASE("Zero: refuses optimizers whose step needs all gradients") {
  run_ranks(2, [&](const GroupHandle& group) {
    RANK_CHECK_THROWS_MATCHES(ZeroRedundancyOptimizer<optim::Lamb>(new_parameters(), optim::LambOptions(), group),
                              std::invalid_argument, ContainsSubstring("cannot shard Lamb: max_grad_norm needs"));
    ZeroRedundancyOptimizer<optim::Lamb> allowed(new_parameters(), optim::LambOptions().max_grad_norm(0), group);
    auto mixed = new_parameters();
    mixed.push_back(mixed.front().detach().to(at::kDouble).requires_grad_());
    RANK_CHECK_THROWS_MATCHES(ZeroRedundancyOptimizer<optim::Adafactor>(mixed, optim::AdafactorOptions(), group),
                              std::invalid_argument, ContainsSubstring("parameters of several dtypes"));
  });
}

TEST_CASE("ZeroMemory: each rank keeps its share of the state") {
  for (const int size : {2, 3, 4}) {
    std::mutex mutex;
    std::vector<size_t> bytes;
    run_ranks(size, [&](const GroupHandle& group) {
      std::vector<at::Tensor> parameters;
      for (int i = 0; i < 24; ++i) parameters.push_back(test::numbers({100, 10}, i).requires_grad_());
      ZeroRedundancyOptimizer<optim::Adam> optimizer(parameters, optim::AdamOptions(0.1), group);
      train(optimizer, parameters, 0, 1);
      const std::lock_guard lock(mutex);
      bytes.push_back(state_bytes(optimizer.local(), parameters));
    });
    const size_t whole = 24 * (2 * 1000 * sizeof(float) + sizeof(float));
    for (const size_t own : bytes) CHECK(own == whole / static_cast<size_t>(size));
    std::printf("ZeRO-1, Adam, %d ranks: %zu of %zu bytes of state a rank\n", size, bytes.front(), whole);
  }
}

TEST_CASE("ZeroGroups: a group that is added later is dealt out as well") {
  const auto expected = new_parameters();
  optim::SGD unsharded({expected[0], expected[4]}, SGDOptions(0.1).momentum(0.9));
  const torch::optim::OptimizerParamGroup later({expected[1], expected[3]}, std::make_unique<SGDOptions>(0.5));
  set_gradients(expected, 0);
  unsharded.step();
  static_cast<torch::optim::Optimizer&>(unsharded).add_param_group(later);
  train(unsharded, expected, 1, 3);
  for (const bool views : {false, true}) {
    run_ranks(3, [&](const GroupHandle& group) {
      const auto parameters = new_parameters();
      ZeroRedundancyOptimizer<optim::SGD> optimizer({parameters[0], parameters[4]}, SGDOptions(0.1).momentum(0.9),
                                                    group, {.parameters_as_bucket_view = views});
      set_gradients(parameters, 0);
      optimizer.step();
      static_cast<torch::optim::Optimizer&>(optimizer).add_param_group(
          torch::optim::OptimizerParamGroup({parameters[1], parameters[3]}, std::make_unique<SGDOptions>(0.5)));
      train(optimizer, parameters, 1, 3);
      expect_same_bits(parameters, expected);
    });
  }
}

// As torch::load() into a model does.
TEST_CASE("ZeroBuckets: parameters that were given other memory are moved into buckets again") {
  const auto expected = new_parameters();
  optim::SGD unsharded(expected, SGDOptions(0.1).momentum(0.9));
  train(unsharded, expected, 0, 4);
  run_ranks(3, [&](const GroupHandle& group) {
    const auto parameters = new_parameters();
    ZeroRedundancyOptimizer<optim::SGD> optimizer(parameters, SGDOptions(0.1).momentum(0.9), group,
                                                  {.parameters_as_bucket_view = true});
    for (int step = 0; step < 4; ++step) {
      for (const auto& parameter : parameters) {
        const_cast<at::Tensor&>(parameter).set_data(parameter.detach().clone());
      }
      train(optimizer, parameters, step, 1);
    }
    expect_same_bits(parameters, expected);
  });
}

TEST_CASE("ZeroScaled: every rank skips what found_inf says") {
  run_ranks(2, [](const GroupHandle& group) {
    const auto parameters = new_parameters();
    ZeroRedundancyOptimizer<optim::Adam> optimizer(parameters, optim::AdamOptions(0.1), group);
    set_gradients(parameters, 0, 8);
    const auto flag = [](double value) { return here(at::scalar_tensor(value, at::kFloat)); };
    optimizer.step_scaled({.grad_scale = flag(8), .found_inf = flag(1)});
    expect_same_bits(parameters, new_parameters());
    optimizer.step_scaled({.grad_scale = flag(8), .found_inf = flag(0)});
    const auto expected = new_parameters();
    optim::Adam unsharded(expected, optim::AdamOptions(0.1));
    train(unsharded, expected, 0, 1);
    expect_same_bits(parameters, expected);
  });
}

// Only one rank owns the parameter; the others must not wait for what it refuses to send.
TEST_CASE("ZeroScaled: the step leaves the same gradients on every rank, unscaled unless it is skipped") {
  run_ranks(2, [&](const GroupHandle& group) {
    std::vector<at::Tensor> parameters;
    for (int i = 0; i < 4; ++i) parameters.push_back(here(at::full({3}, 1.0 * i)).requires_grad_());
    ZeroRedundancyOptimizer<optim::Adam> optimizer(parameters, optim::AdamOptions(0.1), group);
    for (const float found : {0.0F, 1.0F, 2.0F}) {
      for (auto& parameter : parameters) parameter.mutable_grad() = at::full_like(parameter, 6).detach();
      optimizer.step_scaled({.grad_scale = here(at::full({1}, 3.0F)), .found_inf = here(at::full({1}, found))});
      for (const auto& parameter : parameters) {
        RANK_CHECK(at::equal(parameter.grad(), at::full_like(parameter, found == 0 ? 2 : 6).detach()));
      }
    }
  });
}

TEST_CASE("ZeroErrors: every rank refuses what one would and nothing changes") {
  const auto body = [&](const GroupHandle& group) {
    const auto parameters = new_parameters();
    ZeroRedundancyOptimizer<optim::SGD> optimizer(parameters, SGDOptions(0.1).momentum(0.9), group);
    train(optimizer, parameters, 0, 2);
    optimizer.consolidate_state();
    std::vector<at::Tensor> before;
    for (const auto& parameter : parameters) before.push_back(parameter.detach().clone());
    set_gradients(parameters, 2);
    parameters[1].mutable_grad() = parameters[1].grad().to_sparse();
    RANK_CHECK_THROWS_MATCHES(optimizer.step(), std::invalid_argument,
                              ContainsSubstring("does not support sparse gradients"));
    expect_same_bits(parameters, before);
    if (group.rank() == 0) {
      RANK_CHECK_FALSE(optimizer.parameter_state(parameters[0]).empty());
    }
    train(optimizer, parameters, 2, 1);
  };
  run_ranks(3, body);
}

TEST_CASE("ZeroErrors: name rank and difference") {
  const auto differing = [](const GroupHandle& group) {
    const auto parameter = test::numbers({2 + group.rank()}, 0).requires_grad_();
    ZeroRedundancyOptimizer<optim::SGD>({parameter}, SGDOptions(0.1), group);
  };
  CHECK_THROWS_MATCHES(run_ranks(2, differing), std::runtime_error,
                       MessageMatches(ContainsSubstring("rank 0 has a parameter Float of shape [2]") &&
                                      ContainsSubstring("rank 1 has a parameter Float of shape [3]")));
  const auto group = test::unconnected_rank(1, 1 + 1);
  CHECK_THROWS_MATCHES(ZeroRedundancyOptimizer<optim::SGD>(std::vector<at::Tensor>{}, SGDOptions(0.1), group),
                       std::invalid_argument,
                       MessageMatches(ContainsSubstring("rank 1 of 2") &&
                                      ContainsSubstring("ZeroRedundancyOptimizer got an empty parameter list")));
  run_ranks(2, [](const GroupHandle& ranks) {
    ZeroRedundancyOptimizer<optim::SGD> optimizer(new_parameters(), SGDOptions(0.1), ranks);
    RANK_CHECK_THROWS_MATCHES(optimizer.consolidate_state(2), std::invalid_argument,
                              ContainsSubstring("there is no rank 2"));
    RANK_CHECK_THROWS_AS(optimizer.rank_of(here(at::zeros({2}))), std::invalid_argument);
  });
}

torch::nn::Linear new_layer() {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  auto net = test::placed(torch::nn::Linear(6, 5));
  const torch::NoGradGuard no_grad;
  net->weight.copy_(test::numbers({5, 6}, 1));
  net->bias.copy_(test::numbers({5}, 2));
  return net;
}

// Ranks have 3, 4 and 5 batches; the last joiner's weights are everyone's.
TEST_CASE("ZeroJoin: ranks without inputs go on updating their share") {
  std::vector<at::Tensor> expected;
  for (const bool sharded : {false, true}) {
    run_ranks(3, [&](const GroupHandle& group) {
      auto net = new_layer();
      DistributedDataParallel<torch::nn::Linear> model(net, group);
      std::unique_ptr<optim::FusedOptimizer> optimizer;
      std::vector<Joinable*> joinables = {&model->joinable()};
      if (sharded) {
        auto zero =
            std::make_unique<ZeroRedundancyOptimizer<optim::AdamW>>(net->parameters(), AdamWOptions(0.05), group);
        joinables.push_back(zero.get());
        optimizer = std::move(zero);
      } else {
        optimizer = std::make_unique<optim::AdamW>(net->parameters(), AdamWOptions(0.05));
      }
      join(joinables, [&] {
        for (int step = 0; step < 3 + group.rank(); ++step) {
          optimizer->zero_grad();
          model(test::numbers({4, 6}, 100 + step * 3 + group.rank())).square().sum().backward();
          optimizer->step();
        }
      });
      if (!sharded && group.rank() == 2) expected = {net->weight.detach().clone(), net->bias.detach().clone()};
      if (sharded) expect_same_bits({net->weight, net->bias}, expected);
    });
  }
}

TEST_CASE("ZeroCheckpoint: rank 0 saves and every rank loads its share") {
  const test::TemporaryFolder folder;
  const auto step = [](torch::nn::Linear& net, optim::FusedOptimizer& optimizer, int salt) {
    optimizer.zero_grad();
    net(test::numbers({4, 6}, salt)).square().sum().backward();
    optimizer.step();
  };
  auto straight = new_layer();
  optim::Adam alone(straight->parameters(), optim::AdamOptions(0.1).maximize(true));
  for (int i = 0; i < 4; ++i) step(straight, alone, i);
  run_ranks(2, [&](const GroupHandle& group) {
    auto net = new_layer();
    ZeroRedundancyOptimizer<optim::Adam> optimizer(net->parameters(), optim::AdamOptions(0.1).maximize(true), group);
    for (int i = 0; i < 2; ++i) step(net, optimizer, i);
    optimizer.consolidate_state();
    save_checkpoint(folder / "zero.safetensors", {.model = net, .optimizer = optimizer}, group);
  });
  run_ranks(3, [&](const GroupHandle& group) {
    auto net = new_layer();
    ZeroRedundancyOptimizer<optim::Adam> optimizer(net->parameters(), optim::AdamOptions(7), group);
    load_checkpoint(folder / "zero.safetensors", {.model = net, .optimizer = optimizer}, group);
    for (int i = 2; i < 4; ++i) step(net, optimizer, i);
    expect_same_bits({net->weight, net->bias}, {straight->weight, straight->bias});
    // LibTorch's own cannot maximize.
    torch::optim::Adam torchs(net->parameters(), torch::optim::AdamOptions(1));
    RANK_CHECK_THROWS_MATCHES(load_checkpoint(folder / "zero.safetensors", {.model = net, .optimizer = torchs}, group),
                              std::runtime_error, ContainsSubstring("it maximizes"));
    torch::optim::SGD other(net->parameters(), torch::optim::SGDOptions(1));
    RANK_CHECK_THROWS_MATCHES(load_checkpoint(folder / "zero.safetensors", {.model = net, .optimizer = other}, group),
                              std::runtime_error, ContainsSubstring("but the optimizer is SGD"));
  });
}

TEST_CASE("LrScheduler: sets rates and momenta of ours and torch's optimizers") {
  const auto parameters = new_parameters();
  torch::optim::SGD torchs(parameters, torch::optim::SGDOptions(1.0).momentum(0.5));
  optim::AdamW ours(parameters, AdamWOptions(1.0));
  const auto schedule = schedules::one_cycle({.max_lr = {2.0}, .total_steps = 10});
  optim::LrScheduler one(torchs, schedule), two(ours, schedule);
  for (int i = 0; i < 3; ++i) {
    one.step();
    two.step();
  }
  const auto& sgd = static_cast<torch::optim::SGDOptions&>(torchs.param_groups()[0].options());
  const auto& adamw = static_cast<AdamWOptions&>(ours.param_groups()[0].options());
  CHECK(sgd.lr() == one.get_last_lr()[0]);
  CHECK(adamw.lr() == sgd.lr());
  CHECK(std::get<0>(adamw.betas()) == sgd.momentum());
  CHECK(sgd.momentum() != 0.5);

  optim::Adagrad none(parameters, AdagradOptions(1.0));
  CHECK_THROWS_MATCHES(optim::LrScheduler(none, schedule), std::invalid_argument,
                       MessageMatches(ContainsSubstring("optimizer must support momentum or beta1")));
}

TEST_CASE("LrScheduler: is a part of a training runs checkpoint") {
  const test::TemporaryFolder folder;
  const auto run = [&](bool first, double& lr) {
    run_ranks(2, [&](const GroupHandle& group) {
      auto net = new_layer();
      optim::SGD optimizer(net->parameters(), SGDOptions(1.0));
      optim::LrScheduler scheduler(optimizer,
                                   schedules::sequential({schedules::linear(), schedules::cosine({.t_max = 9})}, {4}));
      CheckpointManager checkpoints(folder.path(), group);
      const TrainingState state{.model = net, .optimizer = optimizer, .schedule = scheduler};
      RANK_CHECK(checkpoints.load_latest(state).has_value() == !first);
      for (int i = 0; i < 6; ++i) scheduler.step();
      if (first) checkpoints.save(1, state);
      if (group.rank() == 0) lr = scheduler.get_last_lr()[0];
    });
  };
  double at_6 = 0, at_12 = 0;
  run(true, at_6);
  run(false, at_12);
  schedules::Groups groups = {{.lr = 1.0}};
  auto straight = schedules::sequential({schedules::linear(), schedules::cosine({.t_max = 9})}, {4});
  straight.start(groups);
  for (int i = 0; i < 12; ++i) {
    straight.step(groups);
    CHECK((i == 5 ? at_6 : groups[0].lr) == groups[0].lr);
  }
  CHECK(at_12 == groups[0].lr);
}

TEST_CASE("LrScheduler: a step that is refused changes nothing") {
  using namespace schedules;
  optim::SGD optimizer(new_parameters(), SGDOptions(0.1).momentum(0.9));
  optim::LrScheduler scheduler(
      optimizer, chained({exponential({.gamma = 0.9}), one_cycle({.max_lr = {1}, .total_steps = 3})}), {.interval = 2});
  for (int i = 0; i < 7; ++i) scheduler.step();
  const auto state = scheduler.save();
  const auto rates = scheduler.get_last_lr();
  for (int i = 0; i < 2; ++i) {
    CHECK_THROWS_MATCHES(scheduler.step(), std::invalid_argument,
                         MessageMatches(ContainsSubstring("total steps is 3")));
    CHECK(scheduler.save() == state);
    CHECK(scheduler.get_last_lr() == rates);
    CHECK(optimizer.param_groups()[0].options().get_lr() == rates[0]);
  }
}

TEST_CASE("LrScheduler: interval makes steps of iterations and a state goes on where it was") {
  const auto parameters = new_parameters();
  optim::SGD optimizer(parameters, SGDOptions(1.0));
  const optim::LrSchedulerOptions options{.interval = 4};
  optim::LrScheduler scheduler(optimizer, schedules::exponential({.gamma = 0.5}), options);
  for (int i = 0; i < 9; ++i) scheduler.step();
  CHECK(scheduler.get_last_lr()[0] == 0.25);
  const auto state = scheduler.save();
  optim::SGD other(parameters, SGDOptions(1.0));
  optim::LrScheduler resumed(other, schedules::exponential({.gamma = 0.5}), options);
  resumed.load(state);
  CHECK(other.param_groups()[0].options().get_lr() == 0.25);
  for (int i = 0; i < 3; ++i) resumed.step();
  CHECK(other.param_groups()[0].options().get_lr() == 0.125);
  const auto before = resumed.save();
  for (const auto* bad : {"", "[]", "{}", R"({"calls":1,"groups":[]})"})
    CHECK_THROWS_AS(resumed.load(bad), std::invalid_argument);
  optim::LrScheduler another(other, schedules::cosine({.t_max = 3}));
  CHECK_THROWS_AS(another.load(state), std::invalid_argument);
  CHECK(resumed.save() == before);
  CHECK_THROWS_AS(optim::LrScheduler(other, schedules::linear(), {.interval = 0}), std::invalid_argument);
}

TEST_CASE("ReduceLROnPlateau: all ranks decide alike by the mean") {
  run_ranks(3, [](const GroupHandle& group) {
    optim::SGD optimizer(new_parameters(), SGDOptions(1.0));
    optim::ReduceLROnPlateau plateau(optimizer, group, {.factor = 0.5, .patience = 1});
    // On rank 0 it gets better every time, on the others worse: the mean stands still.
    for (int i = 0; i < 3; ++i) plateau.step(group.rank() == 0 ? 10.0 - 2 * i : 10.0 + i);
    RANK_CHECK(plateau.get_last_lr()[0] == 0.5);
    RANK_CHECK(optimizer.param_groups()[0].options().get_lr() == 0.5);
  });
}

}  // namespace
}  // namespace ddp

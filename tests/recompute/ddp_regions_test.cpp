// Regions and DistributedDataParallel: inside the wrapped model with any option; around the wrapper it is refused.
#include <ATen/autocast_mode.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "ddprun/amp/amp.h"
#include "ddprun/amp/autocast.h"
#include "ddprun/amp/grad_scaler.h"
#include "ddprun/ddp/comm_hooks.h"
#include "ddprun/ddp/distributed_data_parallel.h"
#include "ddprun/optim/optimizers.h"
#include "ddprun/optim/zero_redundancy_optimizer.h"
#include "ddprun/recompute/recompute.h"
#include "ddprun/syncbn/conversion.h"
#include "tests/ddp/support.h"
#include "tests/recompute/regions.h"
#include "tests/support/catch.h"
#include "tests/support/rank_checks.h"
#include "tests/support/ranks.h"

namespace ddp::regions {
namespace {

using Catch::Matchers::ContainsSubstring;

// A block that is used twice, one that may stay unused, statistics of batches. Without dropout: ranks that are threads
// draw from one generator.
struct NetImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) {
    const auto run = [this](auto function, const at::Tensor& input) {
      return has_regions ? checkpoint({.update_buffers_once = {norm.ptr()}}, function, input) : function(input);
    };
    at::Tensor h = run([this](const at::Tensor& y) { return norm(stem(y)).relu_(); }, x);
    h = run([this](const at::Tensor& y) { return uses_side ? block(y) + side(y.sin()) : block(y); }, h);
    h = run(
        [this](const at::Tensor& y) {
          const at::Tensor z = block(y.cos());
          if (fails_in_run && *fails_in_run == is_recomputing()) throw std::runtime_error("an error of the region");
          return z.tanh() + y;
        },
        h);
    return head(h);
  }
  torch::nn::Linear stem = register_module("stem", torch::nn::Linear(6, 8));
  torch::nn::BatchNorm1d norm = register_module("norm", torch::nn::BatchNorm1d(8));
  torch::nn::Linear block = register_module("block", torch::nn::Linear(8, 8));
  torch::nn::Linear side = register_module("side", torch::nn::Linear(8, 8));
  torch::nn::Linear head = register_module("head", torch::nn::Linear(8, 3));
  bool has_regions = false;
  bool uses_side = true;
  std::optional<bool> fails_in_run;  // false: the first, true: the second
};
TORCH_MODULE(Net);

using Model = DistributedDataParallel<Net>;
using State = std::vector<at::Tensor>;

State state_of(const Net& net) {
  State state;
  for (const auto& parameter : net->parameters()) state.push_back(parameter.detach().clone());
  for (const auto& buffer : net->buffers()) state.push_back(buffer.detach().clone());
  return state;
}

at::Tensor data(const GroupHandle& group, int step) {
  return test::numbers({4, 6}, 100 * (group.rank() + 1) + step);
}

// One way to train: what becomes of a net in some steps.
using Train = std::function<void(Net& net, const GroupHandle& group)>;
using Step = std::function<void(Model& model, const GroupHandle& group, int step)>;

void usual_step(Model& model, const GroupHandle& group, int step) {
  model(data(group, step)).pow(2).mean().backward();
}

Train with(const std::function<DdpOptions(const GroupHandle&)>& options, const Step& step = usual_step) {
  return [=](Net& net, const GroupHandle& group) {
    Model model(net, group, options(group));
    optim::SGD optimizer(net->parameters(), optim::SGDOptions(0.01));
    for (int i = 0; i < 4; ++i) {
      optimizer.zero_grad();
      step(model, group, i);
      optimizer.step();
    }
  };
}

Train with(const DdpOptions& options, const Step& step = usual_step) {
  return with([=](const GroupHandle&) { return options; }, step);
}

void expect_the_bits_without_regions(const Train& train) {
  for (const test::Wire wire : test::wires({test::Wire::kGloo, test::Wire::kShm})) {
    test::run_ranks(2,
                    [&](const GroupHandle& group) {
                      std::optional<State> without;
                      for (const bool has_regions : {false, true}) {
                        auto net = test::make<Net>(1);
                        net->has_regions = has_regions;
                        train(net, group);
                        const State state = state_of(net);
                        if (!without) {
                          without = state;
                          continue;
                        }
                        for (size_t i = 0; i < state.size(); ++i) {
                          RANK_CHECK(state[i].isfinite().all().item<bool>());
                          test::expect_equal(state[i], (*without)[i]);
                        }
                        RANK_CHECK(!at::equal(state[0], test::make<Net>(1)->parameters()[0]));
                      }
                    },
                    {.wire = wire});
  }
}

TEST_CASE("Regions and ddp: each option has the bits of the training without regions") {
  const Step skips = [](Model& model, const GroupHandle& group, int step) {
    model->module()->uses_side = (step + group.rank()) % 2 == 0;
    usual_step(model, group, step);
  };
  const Step accumulates = [](Model& model, const GroupHandle& group, int step) {
    {
      const auto local = model->no_sync();
      usual_step(model, group, step + 50);
    }
    usual_step(model, group, step);
  };
  const Step two_forwards = [](Model& model, const GroupHandle& group, int step) {
    const at::Tensor first = model(data(group, step));
    const at::Tensor second = model(data(group, step + 50));
    (first * second).mean().backward();
  };
  const Step twice = [](Model& model, const GroupHandle& group, int step) {
    const at::Tensor output = model(data(group, step));
    output.mean().backward({}, /*retain_graph=*/true);
    output.pow(2).mean().backward();
  };
  const Step penalty = [](Model& model, const GroupHandle& group, int step) {
    const at::Tensor input = data(group, step).requires_grad_();
    const at::Tensor output = model(input);
    const auto slope = torch::autograd::grad({output.mean()}, {input}, {}, std::nullopt, /*create_graph=*/true)[0];
    (output.pow(2).mean() + slope.pow(2).mean()).backward();
  };
  SECTION("plain") {
    expect_the_bits_without_regions(with(DdpOptions{}));
  }
  SECTION("many buckets") {
    expect_the_bits_without_regions(with(DdpOptions{.bucket_cap_bytes = 64}));
  }
  SECTION("copies of gradients") {
    expect_the_bits_without_regions(with(DdpOptions{.gradient_as_bucket_view = false}));
  }
  SECTION("c10d's engine") {
    expect_the_bits_without_regions(with(DdpOptions{.bucket_cap_bytes = 64, .own_engine = false}));
  }
  SECTION("unused parameters") {
    expect_the_bits_without_regions(with(DdpOptions{.find_unused_parameters = true}, skips));
  }
  SECTION("static graph") {
    expect_the_bits_without_regions(with(DdpOptions{.static_graph = true}));
  }
  SECTION("no_sync()") {
    expect_the_bits_without_regions(with(DdpOptions{}, accumulates));
  }
  SECTION("two forwards, one backward") {
    expect_the_bits_without_regions(with(DdpOptions{}, two_forwards));
  }
  SECTION("one forward, two backwards") {
    expect_the_bits_without_regions(with(DdpOptions{}, twice));
  }
  SECTION("a gradient penalty") {
    expect_the_bits_without_regions(with(DdpOptions{}, penalty));
  }
  SECTION("a communication hook") {
    expect_the_bits_without_regions(
        with([](const GroupHandle& group) { return DdpOptions{.comm_hook = hooks::bf16_compress(group)}; }));
  }
}

TEST_CASE("Regions and ddp: uneven inputs, SyncBatchNorm and ZeRO-1") {
  SECTION("join()") {
    expect_the_bits_without_regions([](Net& net, const GroupHandle& group) {
      Model model(net, group);
      optim::SGD optimizer(net->parameters(), optim::SGDOptions(0.01));
      model->join([&] {
        for (int step = 0; step < 2 + 2 * group.rank(); ++step) {
          optimizer.zero_grad();
          usual_step(model, group, step);
          optimizer.step();
        }
      });
    });
  }
  SECTION("SyncBatchNorm") {
    expect_the_bits_without_regions([](Net& net, const GroupHandle& group) {
      convert_sync_batchnorm(net, group);
      with(DdpOptions{.bucket_cap_bytes = 64})(net, group);
    });
  }
  SECTION("ZeRO-1") {
    expect_the_bits_without_regions([](Net& net, const GroupHandle& group) {
      Model model(net, group);
      ZeroRedundancyOptimizer<optim::AdamW> optimizer(net->parameters(), optim::AdamWOptions(0.01), group);
      for (int step = 0; step < 4; ++step) {
        optimizer.zero_grad();
        usual_step(model, group, step);
        optimizer.step();
      }
    });
  }
}

// Ranks that are threads have one cache of casts, which each of them empties.
Train without_cache(const Train& train) {
  return [train](Net& net, const GroupHandle& group) {
    at::autocast::set_autocast_cache_enabled(false);  // of this rank's thread
    train(net, group);
  };
}

TEST_CASE("Regions and ddp: mixed precision, also where a step is skipped") {
  SECTION("GradScaler") {
    expect_the_bits_without_regions(without_cache([](Net& net, const GroupHandle& group) {
      Model model(net, group);
      optim::SGD optimizer(net->parameters(), optim::SGDOptions(0.01));
      GradScaler scaler({.init_scale = 1024, .device = group.device().type(), .group = group});
      for (int step = 0; step < 4; ++step) {
        optimizer.zero_grad();
        at::Tensor loss;
        {
          const Autocast autocast(group.device(), {.dtype = at::kBFloat16});
          loss = model(data(group, step)).to(at::kFloat).pow(2).mean() * (step == 2 ? 1e38 : 1.0);
        }
        scaler.scale(loss).backward();
        scaler.step(optimizer);
        scaler.update();
      }
      RANK_CHECK(scaler.get_scale() == 512);
    }));
  }
  for (const char* level : {"O1", "O2", "O3"}) {
    SECTION(level) {
      expect_the_bits_without_regions(without_cache([level](Net& net, const GroupHandle& group) {
        optim::SGD optimizer(net->parameters(), optim::SGDOptions(0.01));
        const auto amp = amp::initialize(
            net, optimizer, {.opt_level = level, .dtype = at::kBFloat16, .max_loss_scale = 128.0, .group = group});
        auto mixed = amp.model(net);
        DistributedDataParallel model(mixed, group);
        for (int step = 0; step < 4; ++step) {
          optimizer.zero_grad();
          at::Tensor loss;
          {
            const auto autocast = amp.autocast();
            loss = model(data(group, step)).to(at::kFloat).pow(2).mean();
          }
          amp.scale_loss(loss, optimizer).backward();
          amp.step(optimizer);
        }
      }));
    }
  }
}

TEST_CASE("Regions and ddp: other ranks report which rank failed, in the forward or the recomputation") {
  for (const bool again : {false, true}) {
    for (const test::Wire wire : test::wires({test::Wire::kGloo, test::Wire::kShm})) {
      std::string first;
      try {
        test::run_ranks(2,
                        [&](const GroupHandle& group) {
                          auto net = test::make<Net>(1);
                          net->has_regions = true;
                          Model model(net, group);
                          usual_step(model, group, 0);
                          if (group.rank() == 1) net->fails_in_run = again;
                          std::string message;
                          try {
                            usual_step(model, group, 1);
                          } catch (const std::exception& error) {
                            message = error.what();
                            RANK_CHECK_THAT(message,
                                            ContainsSubstring(group.rank() == 1 ? "an error of the region" : "rank 1"));
                            throw;
                          }
                          RANK_FAIL("it went well");
                        },
                        {.wire = wire});
      } catch (const std::exception& error) {
        first = error.what();
      }
      CHECK_THAT(first, ContainsSubstring("an error of the region"));
    }
  }
}

TEST_CASE("Regions and ddp: a region around the wrapper is refused with the remedy") {
  for (const test::Wire wire : test::wires({test::Wire::kGloo, test::Wire::kShm})) {
    test::run_ranks(2,
                    [](const GroupHandle& group) {
                      auto net = block();
                      DistributedDataParallel model(net, group);
                      const at::Tensor input = here(at::rand({8, 16})).requires_grad_();
                      std::string message;
                      try {
                        checkpoint([&](const at::Tensor& x) { return model(x).sin(); }, input).sum().backward();
                      } catch (const std::exception& error) {
                        message = error.what();
                      }
                      RANK_CHECK_THAT(message, ContainsSubstring("Call checkpoint() inside the wrapped model"));
                    },
                    {.wire = wire});
  }
}

}  // namespace
}  // namespace ddp::regions

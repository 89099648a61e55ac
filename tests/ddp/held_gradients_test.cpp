// What a program sees of gradients does not depend on whether they lie in buckets: tensors that it keeps hold their
// values, tensors that are p.grad() stay p.grad(). The judge is c10d's engine with gradient_as_bucket_view = false,
// Python's default.
#include <ATen/ops/zeros.h>
#include <torch/headeronly/version.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <random>
#include <string>
#include <vector>

#include <ddprun/ddp/comm_hooks.h>
#include <ddprun/ddp/distributed_data_parallel.h>
#include <ddprun/optim/optimizers.h>

#include "tests/ddp/support.h"
#include "tests/support/catch.h"
#include "tests/support/every_wire.h"
#include "tests/support/placement.h"
#include "tests/support/rank_checks.h"

namespace ddp {
namespace {

using Catch::Matchers::ContainsSubstring;
using test::expect_close;
using test::expect_equal;
using test::make;
using test::numbers;
using test::run_ranks;
using test::TwoLayers;
using test::Wire;

// Of which a forward may leave the second half unused.
struct HalvesImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x, bool both) {
    const torch::Tensor y = torch::tanh(first(x));
    return both ? second(y).sum() + y.sum() : y.square().sum();
  }
  torch::nn::Linear first = register_module("first", torch::nn::Linear(6, 5));
  torch::nn::Linear second = register_module("second", torch::nn::Linear(5, 3));
};
TORCH_MODULE(Halves);

struct SquareImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) { return layer(x); }
  torch::nn::Linear layer = register_module("layer", torch::nn::Linear(4, 4));
};
TORCH_MODULE(Square);

// One after another every value that a program could see.
using Seen = std::vector<torch::Tensor>;

TEST_CASE_METHOD(test::EveryWire,
                 "HeldGradients: a gradient whose data the program has set is averaged with the rest") {
  const DdpOptions options = GENERATE(DdpOptions{}, DdpOptions{.gradient_as_bucket_view = false},
                                      DdpOptions{.find_unused_parameters = true}, DdpOptions{.static_graph = true});
  const bool before_forward = GENERATE(false, true);
  run(3, [&](const GroupHandle& group) {
    const Square net = make<Square>(1);
    DistributedDataParallel<Square> model(net, group, options);
    const torch::Tensor weight = net->layer->weight;
    const auto set_data = [&](double value) { weight.mutable_grad().set_data(test::here(at::full({4, 4}, value))); };
    for (int step = 0; step < 4; ++step) {
      std::vector<torch::Tensor> kept;
      if (step > 0 && before_forward) set_data(group.rank());
      const auto loss = model(test::here(at::full({1, 4}, group.rank() + 1.0))).sum();
      if (step == 3) kept.push_back(weight.grad().flatten());  // where the gradient was
      if (step > 0 && !before_forward) set_data(group.rank());
      const torch::Tensor before = kept.empty() ? torch::Tensor() : kept[0].clone();
      loss.backward();
      // The mean of 0, 1 and 2, and of 1, 2 and 3.
      expect_close(weight.grad(), test::here(at::full({4, 4}, step > 0 ? 3.0 : 2.0)), 1e-6);
      if (!kept.empty() && !before_forward) expect_equal(kept[0], before);
      if (step != 0) continue;
      weight.mutable_grad().set_data(weight.grad().t());  // the same memory in another order
      expect_close(weight.grad(), test::here(at::full({4, 4}, step > 0 ? 3.0 : 2.0)), 1e-6);
    }
  });
}

// A program made at random: forwards, backwards, and what programs do with gradients in between.
class RandomProgram {
 public:
  RandomProgram(const GroupHandle& group, const DdpOptions& options, unsigned seed)
      : group_(group), options_(options), random_(seed), model_(net_, group, options) {
    if (chance(3)) use_flat_memory();
    if (chance(3)) {
      for (const auto& parameter : parameters_) parameter.mutable_grad() = numbers(parameter.sizes(), 3);
      if (chance(2)) keep();
    }
  }

  const std::string& story() const { return story_; }
  Seen run(int steps) {
    for (int step = 0; step < steps; ++step) {
      act(step);
      look();
    }
    return std::move(seen_);
  }

 private:
  bool chance(unsigned of) { return random_() % of == 0; }
  torch::Tensor some() { return parameters_[random_() % parameters_.size()]; }

  void act(int step) {
    const auto action = random_() % 12;
    static constexpr const char* kNames[]{"reset", "zero", "keep", "put back", "replace", "multiply", "drop", "local"};
    story_ += std::string(action < 8 ? kNames[action] : "reduce") + "; ";
    switch (action) {
      case 0:
        return net_->zero_grad(/*set_to_none=*/true);
      case 1:
        return net_->zero_grad(/*set_to_none=*/false);
      case 2:
        return keep();
      case 3:
        return put_back();
      case 4: {
        const auto parameter = some();
        if (parameter.grad().defined()) parameter.mutable_grad() = parameter.grad() * 0.5 + 0.25;
        return;
      }
      case 5: {
        const auto parameter = some();
        if (!parameter.grad().defined()) return;
        if (chance(2)) {
          story_ += "(set data) ";
          parameter.mutable_grad().set_data(parameter.grad() * 0.5 + 0.25);
        } else {
          parameter.mutable_grad().mul_(0.5);
        }
        return;
      }
      case 6:
        kept_.clear();
        return;
      case 7: {
        const auto guard = model_->no_sync();
        return backward(step);
      }
      default:
        return backward(step);
    }
  }

  void backward(int step) {
    const bool both = !options_.find_unused_parameters || chance(2);
    const auto loss = model_(numbers({3, 6}, group_.rank() + 10 * step), both);
    if (chance(4)) keep();
    if (chance(4)) {
      story_ += "(reset) ";
      net_->zero_grad();
    }
    loss.backward();
  }

  // The tensor, a view of it, or one that shares its memory.
  void keep() {
    story_ += "(keep) ";
    for (const auto& parameter : parameters_) {
      const torch::Tensor& gradient = parameter.grad();
      if (!gradient.defined() || chance(2)) continue;
      const auto how = random_() % 3;
      kept_.push_back(how == 0 ? gradient : how == 1 ? gradient.flatten() : gradient.detach());
    }
  }

  // A kept gradient, perhaps of another parameter.
  void put_back() {
    const auto parameter = some();
    for (const auto& each : kept_) {
      if (each.sizes() == parameter.sizes()) parameter.mutable_grad() = each;
    }
  }

  // As programs do that look at all gradients as one vector.
  void use_flat_memory() {
    int64_t total = 0;
    for (const auto& parameter : parameters_) total += parameter.numel();
    story_ += "(flat) ";
    const torch::Tensor flat = test::here(torch::zeros({total}));
    int64_t begin = 0;
    for (const auto& parameter : parameters_) {
      parameter.mutable_grad() = flat.narrow(0, begin, parameter.numel()).view(parameter.sizes());
      begin += parameter.numel();
    }
    kept_.push_back(flat);
  }

  void look() {
    for (const auto& parameter : parameters_) {
      seen_.push_back(parameter.grad().defined() ? parameter.grad().clone() : torch::Tensor());
    }
    for (const auto& each : kept_) seen_.push_back(each.clone());
  }

  const GroupHandle group_;
  const DdpOptions options_;
  std::mt19937 random_;  // all ranks draw the same
  Halves net_ = make<Halves>(5);
  const std::vector<torch::Tensor> parameters_ = net_->parameters();
  DistributedDataParallel<Halves> model_;
  std::vector<torch::Tensor> kept_;
  Seen seen_;
  std::string story_;
};

class HeldGradients {
 protected:
  const int size_ = GENERATE(2, 3, 4);
  const Wire wire_ = GENERATE(from_range(test::wires({Wire::kGloo, Wire::kShm, Wire::kLate})));
  FIXTURE_INFO("ranks: " << size_ << ", wire: " << wire_);
};

TEST_CASE_METHOD(HeldGradients, "HeldGradients: programs made at random see the same as without buckets") {
  constexpr int kPrograms = 25;
  constexpr int kSteps = 14;
  for (const int64_t cap : {int64_t{60}, int64_t{1} << 20}) {
    run_ranks(size_,
              [&](const GroupHandle& group) {
                std::string story;
                const auto see = [&](DdpOptions options, bool views, std::optional<bool> own, unsigned seed) {
                  options.bucket_cap_bytes = cap;
                  options.gradient_as_bucket_view = views;
                  options.own_engine = own;
                  RandomProgram program(group, options, seed);
                  Seen seen = program.run(kSteps);
                  story = program.story();
                  return seen;
                };
                const auto compare = [&](const DdpOptions& options, std::optional<bool> own, unsigned seed) {
                  const Seen expected = see(options, false, false, seed);
                  const Seen actual = see(options, true, own, seed);
                  RANK_REQUIRE(actual.size() == expected.size());
                  for (size_t i = 0; i < expected.size(); ++i) {
                    RANK_INFO("cap " << cap << ", program " << seed << ", value " << i << " of " << expected.size()
                                     << (options.static_graph ? ", static graph" : "")
                                     << (options.find_unused_parameters ? ", find unused" : "")
                                     << (own.value_or(false) ? ", own engine" : "") << ": " << story);
                    RANK_REQUIRE(actual[i].defined() == expected[i].defined());
                    if (!expected[i].defined()) continue;
                    // c10d divides where a gradient lies in its bucket, and multiplies by the reciprocal where it
                    // copies. Gradients are of the order of 10.
                    if (size_ == 3) {
                      RANK_CHECK_THAT(actual[i], test::IsCloseTo(expected[i], 1e-5, 2e-6));
                    } else {
                      expect_equal(actual[i], expected[i]);
                    }
                  }
                };
                for (unsigned seed = 0; seed < kPrograms; ++seed) {
                  compare({}, false, seed);
                  compare({.static_graph = true}, std::nullopt, seed);
                  if (TORCH_VERSION_MINOR >= 15) compare({.lazy_bucket_allocation = true}, std::nullopt, seed);
                  compare({.delayed = {.names = {"second.weight", "second.bias"}, .trigger = "first.weight"}},
                          std::nullopt, seed);
                  compare({.find_unused_parameters = true}, std::nullopt, seed);
                  if (!test::is_on_devices()) compare({}, true, seed);
                }
              },
              {.wire = wire_});
  }
}

TEST_CASE_METHOD(test::EveryWire,
                 "HeldGradients: those with a graph are refused with every option, and local ones are not") {
  std::vector<DdpOptions> all{{}, {.gradient_as_bucket_view = false}, {.find_unused_parameters = true}};
  // A bucket for each parameter, which c10d does not refuse.
  all.push_back({.bucket_cap_bytes = 1});
  if (TORCH_VERSION_MINOR >= 12) all.push_back({.bucket_cap_bytes = 1, .batched_grad_copy = true});
  if (TORCH_VERSION_MINOR >= 15) all.push_back({.lazy_bucket_allocation = true});
  run(2, [&](const GroupHandle& group) {
    for (const DdpOptions& options : all) {
      auto net = make<TwoLayers>(2);
      DistributedDataParallel<TwoLayers> model(net, group, options);
      const auto loss = [&] { return model(numbers({2, 6}, group.rank())).square().sum(); };
      const auto forget = [&] {
        for (auto& parameter : net->parameters()) parameter.mutable_grad() = torch::Tensor();  // they hold the graph
      };
      {
        const auto no_sync = model->no_sync();
        loss().backward({}, /*retain_graph=*/true, /*create_graph=*/true);
        RANK_CHECK(net->first->weight.grad().grad_fn() != nullptr);
        forget();
      }
      for (int step = 0; step < 2; ++step) {
        loss().backward();
        net->zero_grad();
      }
      std::string message;
      try {
        loss().backward({}, /*retain_graph=*/true, /*create_graph=*/true);
      } catch (const std::exception& error) {
        message = error.what();
      }
      RANK_CHECK_THAT(message, ContainsSubstring("its own autograd graph") && ContainsSubstring("autograd::grad()"));
      forget();
    }
  });
}

// What Python's DDP leaves local without a word.
TEST_CASE_METHOD(HeldGradients, "HeldGradients: delayed ones that the program resets or puts there before backward") {
  run_ranks(size_,
            [&](const GroupHandle& group) {
              for (const bool own_tensor : {false, true}) {
                auto net = make<TwoLayers>(1);
                DistributedDataParallel<TwoLayers> model(
                    net, group, {.delayed = {.names = {"second.weight", "second.bias"}, .trigger = "first.weight"}});
                for (int step = 0; step < 3; ++step) {
                  const torch::Tensor loss = model(numbers({2, 6}, group.rank() + step)).square().sum();
                  net->zero_grad();
                  torch::Tensor weight = net->second->weight;
                  const torch::Tensor zeros = torch::zeros_like(weight);
                  if (own_tensor) weight.mutable_grad() = zeros;
                  loss.backward();
                  const auto expected =
                      test::mean_gradients<TwoLayers>(1, group.size(), [&](TwoLayers& alone, int rank) {
                        alone(numbers({2, 6}, rank + step)).square().sum().backward();
                      });
                  for (size_t i = 0; i < expected.size(); ++i) expect_close(net->parameters()[i].grad(), expected[i]);
                  if (own_tensor) RANK_CHECK(weight.grad().is_same(zeros));
                }
              }
            },
            {.wire = wire_});
}

// As PCGrad, GradNorm and SVRG do.
TEST_CASE_METHOD(HeldGradients, "HeldGradients: two losses whose gradients are combined") {
  run_ranks(size_,
            [&](const GroupHandle& group) {
              const auto train = [&](const DdpOptions& options) {
                auto net = make<TwoLayers>(1);
                DistributedDataParallel<TwoLayers> model(net, group, options);
                torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
                for (int step = 0; step < 5; ++step) {
                  std::vector<torch::Tensor> first;
                  optimizer.zero_grad();
                  model(numbers({2, 6}, group.rank() + 10 * step)).sum().backward();
                  for (const auto& parameter : net->parameters()) first.push_back(parameter.grad());
                  optimizer.zero_grad();
                  model(numbers({2, 6}, group.rank() + 10 * step)).square().sum().backward();
                  for (size_t i = 0; i < first.size(); ++i) {
                    auto parameter = net->parameters()[i];
                    parameter.mutable_grad() = 0.3 * first[i] + 0.7 * parameter.grad();
                  }
                  optimizer.step();
                }
                return net->parameters();
              };
              const auto expected = train({.gradient_as_bucket_view = false});
              const auto actual = train({});
              for (size_t i = 0; i < expected.size(); ++i) expect_equal(actual[i].detach(), expected[i].detach());
            },
            {.wire = wire_});
}

TEST_CASE_METHOD(HeldGradients, "HeldGradients: those of before wrapping, and of delayed parameters") {
  run_ranks(size_,
            [&](const GroupHandle& group) {
              auto net = make<TwoLayers>(1);
              net(numbers({2, 6}, 1)).sum().backward();
              const torch::Tensor before = net->first->weight.grad();
              const torch::Tensor values = before.clone();
              DistributedDataParallel<TwoLayers> model(net, group);
              net->zero_grad();
              for (int step = 0; step < 3; ++step) model(numbers({2, 6}, group.rank())).sum().backward();
              expect_equal(before, values);
            },
            {.wire = wire_});
  run_ranks(size_,
            [&](const GroupHandle& group) {
              auto net = make<TwoLayers>(1);
              DistributedDataParallel<TwoLayers> model(
                  net, group, {.delayed = {.names = {"second.weight", "second.bias"}, .trigger = "first.weight"}});
              for (int step = 0; step < 3; ++step) {
                net->zero_grad();
                model(numbers({2, 6}, group.rank() + step)).sum().backward();
                const torch::Tensor kept = net->second->weight.grad();
                const torch::Tensor view = net->second->bias.grad().view({-1, 1});
                const torch::Tensor values[2]{kept.clone(), view.clone()};
                net->zero_grad();
                model(numbers({2, 6}, group.rank() + 50 + step)).square().sum().backward();
                expect_equal(kept, values[0]);
                expect_equal(view, values[1]);
              }
            },
            {.wire = wire_});
}

// Buckets are renewed for programs that keep gradients only: it costs memory and time.
TEST_CASE_METHOD(HeldGradients, "HeldGradients: ordinary training renews no bucket") {
  if (wire_ == Wire::kLate) return;  // its thread holds the buckets for a moment longer
  const auto train = [&](const DdpOptions& options, bool fused) {
    run_ranks(size_,
              [&](const GroupHandle& group) {
                auto net = make<TwoLayers>(1);
                DistributedDataParallel<TwoLayers> model(net, group, options);
                torch::optim::SGD slow(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
                optim::SGD fast(net->parameters(), optim::SGDOptions(0.1).momentum(0.9));
                for (int step = 0; step < 8; ++step) {
                  fused ? fast.zero_grad(step % 2 == 0) : slow.zero_grad(step % 2 == 0);
                  if (step % 3 == 2) {
                    const auto guard = model->no_sync();
                    model(numbers({2, 6}, group.rank() + 30 + step)).sum().backward();
                  }
                  model(numbers({2, 6}, group.rank() + step)).sum().backward();
                  fused ? (void)fast.step() : (void)slow.step();
                }
                RANK_INFO((fused ? "fused optimizer" : "torch::optim")
                          << (options.static_graph ? ", static graph" : "")
                          << (options.find_unused_parameters ? ", find unused" : "")
                          << (options.own_engine ? ", c10d's engine" : ""));
                RANK_CHECK(model->logging_data().renewed_buckets == 0);
              },
              {.wire = wire_});
  };
  for (const bool fused : {false, true}) {
    train({.bucket_cap_bytes = 100}, fused);
    train({.bucket_cap_bytes = 100, .own_engine = false}, fused);
    train({.find_unused_parameters = true}, fused);
    train({.static_graph = true}, fused);
  }
  run_ranks(size_,
            [&](const GroupHandle& group) {
              std::vector<CommHook> all{hooks::noop(), hooks::fp16_compress(group)};
              all.push_back(hooks::power_sgd(make_power_sgd_state(group, {.start_iteration = 3})));
              for (const CommHook& hook : all) {
                auto net = make<TwoLayers>(1);
                DistributedDataParallel<TwoLayers> model(net, group, {.comm_hook = hook});
                for (int step = 0; step < 8; ++step) {
                  net->zero_grad();
                  model(numbers({2, 6}, group.rank() + step)).sum().backward();
                }
                RANK_INFO(hook_name(hook));
                RANK_CHECK(model->logging_data().renewed_buckets == 0);
              }
            },
            {.wire = wire_});
}

}  // namespace
}  // namespace ddp

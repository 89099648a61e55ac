// Backwards whose gradients cannot be averaged over the ranks, or were used before they were: each is named, with what
// to do.
#include <torch/autograd.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/optim/sgd.h>

#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <ddprun/ddp/distributed_data_parallel.h>
#include <ddprun/detail/comm/gradient_hook.h>

#include "tests/ddp/support.h"
#include "tests/support/catch.h"
#include "tests/support/rank_checks.h"

namespace ddp {
namespace {

using Catch::Matchers::ContainsSubstring;
using test::make;
using test::message_of;
using test::numbers;
using test::run_ranks;
using test::TwoLayers;
using WrappedLayers = DistributedDataParallel<TwoLayers>;

std::vector<DdpOptions> options_of_each_kind() {
  return {{},
          {.bucket_cap_bytes = 100, .own_engine = false},
          {.gradient_as_bucket_view = false},
          {.find_unused_parameters = true},
          {.static_graph = true}};
}

torch::Tensor squares_of(WrappedLayers& model, const GroupHandle& group, int salt = 0) {
  return model(numbers({3, 6}, group.rank() + 10 * salt)).square().sum();
}

// As torch.Tensor.register_post_accumulate_grad_hook().
void call_after_accumulation(const torch::Tensor& parameter, std::function<void(const torch::Tensor&)> function) {
  struct Hook final : torch::autograd::PostAccumulateGradHook {
    explicit Hook(std::function<void(const torch::Tensor&)> call) : function(std::move(call)) {}
    void operator()(const torch::Tensor& changed) override { function(changed); }
    std::function<void(const torch::Tensor&)> function;
  };
  torch::autograd::impl::set_post_acc_grad_hooks(parameter, std::make_unique<Hook>(std::move(function)));
}

TEST_CASE("UnreducedBackwards: an optimizer that steps in a hook of the backward is named") {
  for (const DdpOptions& options : options_of_each_kind()) {
    for (const std::string kind : {"before", "after", "post accumulate"}) {
      run_ranks(2, [&](const GroupHandle& group) {
        RANK_INFO(kind);
        auto net = make<TwoLayers>(3);
        torch::optim::SGD optimizer(net->parameters(), 0.1);
        std::vector<GradientHook> hooks;
        const auto add_hooks = [&] {
          for (const auto& parameter : net->parameters()) hooks.emplace_back(parameter, [&] { optimizer.step(); });
        };
        if (kind == "before") add_hooks();
        WrappedLayers model(net, group, options);
        if (kind == "after") add_hooks();
        if (kind == "post accumulate") {
          for (const auto& parameter : net->parameters()) {
            call_after_accumulation(parameter, [&](const torch::Tensor& /*parameter*/) { optimizer.step(); });
          }
        }
        const std::string message = message_of([&] { squares_of(model, group).backward(); });
        RANK_CHECK_THAT(message, ContainsSubstring("was changed in place while the backward ran") &&
                                     ContainsSubstring("call step() after backward()"));
        RANK_CHECK_THAT(message_of([&] { squares_of(model, group); }), ContainsSubstring("restart all ranks"));
      });
    }
  }
}

TEST_CASE("UnreducedBackwards: under no_sync an optimizer may step in a hook") {
  run_ranks(2, [](const GroupHandle& group) {
    auto net = make<TwoLayers>(3);
    WrappedLayers model(net, group);
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    const auto before = net->first->weight.detach().clone();
    const GradientHook hook(net->first->weight, [&] { optimizer.step(); });
    const auto guard = model->no_sync();
    squares_of(model, group).backward();
    RANK_CHECK_FALSE(before.equal(net->first->weight));
  });
}

TEST_CASE("UnreducedBackwards: a backward that throws while it reduces is what the next forward complains about") {
  for (const DdpOptions& options : options_of_each_kind()) {
    for (const bool first : {true, false}) {  // in the first step, or when the order of the gradients is known
      run_ranks(2, [&](const GroupHandle& group) {
        auto net = make<TwoLayers>(3);
        WrappedLayers model(net, group, options);
        for (int step = first ? 2 : 0; step < 2; ++step) squares_of(model, group).backward();
        const auto hook = net->first->weight.register_hook(
            [](const torch::Tensor&) -> torch::Tensor { throw std::domain_error("mine"); });
        RANK_CHECK_THAT(message_of([&] { squares_of(model, group).backward(); }), ContainsSubstring("mine"));
        net->first->weight.remove_hook(hook);
        const std::string message = message_of([&] { squares_of(model, group); });
        RANK_CHECK_THAT(message, ContainsSubstring("the last backward has thrown"));
        RANK_CHECK_THAT(message, !ContainsSubstring("find_unused_parameters"));
        const torch::NoGradGuard no_grad;
        RANK_CHECK(message_of([&] { squares_of(model, group); }) == "");
      });
    }
  }
}

TEST_CASE("UnreducedBackwards: a backward after the end of its wrapper is refused") {
  for (const DdpOptions& options : options_of_each_kind()) {
    for (const bool wraps_again : {false, true}) {
      run_ranks(2, [&](const GroupHandle& group) {
        auto net = make<TwoLayers>(3);
        std::optional<WrappedLayers> model(std::in_place, net, group, options);
        const auto loss = squares_of(*model, group);
        torch::Tensor local;
        {
          const auto guard = (*model)->no_sync();
          local = squares_of(*model, group);
        }
        model.reset();
        if (wraps_again) model.emplace(net, group, options);
        RANK_CHECK_THAT(message_of([&] { loss.backward({}, /*retain_graph=*/true); }),
                        ContainsSubstring("a wrapper that does not exist any more"));
        RANK_CHECK_THAT(message_of([&] { loss.backward({}, true, false, std::vector{net->first->weight}); }),
                        ContainsSubstring("a wrapper that does not exist any more"));
        RANK_CHECK(!net->first->weight.grad().defined());
        if (wraps_again) return;  // which has written to the parameters
        RANK_CHECK(torch::autograd::grad({loss}, {net->first->weight})[0].defined());
        local.backward();
        RANK_CHECK(net->first->weight.grad().defined());
      });
    }
  }
}

TEST_CASE("UnreducedBackwards: a loss of the parameters alone is told apart from one of the model") {
  run_ranks(2, [](const GroupHandle& group) {
    auto net = make<TwoLayers>(3);
    WrappedLayers model(net, group);
    const auto penalty = [&] {
      torch::Tensor sum = net->first->weight.square().sum();
      for (const auto& parameter : net->parameters()) sum = sum + parameter.square().sum();
      return sum;
    };
    squares_of(model, group).backward();
    RANK_CHECK_THAT(message_of([&] { penalty().backward(); }),
                    ContainsSubstring("A loss of the parameters alone") && ContainsSubstring("model->no_sync()"));
    net->zero_grad();
    squares_of(model, group).backward();
    const auto mean = net->first->weight.grad().clone();
    {
      const auto guard = model->no_sync();
      penalty().backward();
    }
    test::expect_close(net->first->weight.grad(), mean + 4 * net->first->weight);
    net->zero_grad();
    (squares_of(model, group) + penalty()).backward();
    test::expect_close(net->first->weight.grad(), mean + 4 * net->first->weight);
  });
}

}  // namespace
}  // namespace ddp

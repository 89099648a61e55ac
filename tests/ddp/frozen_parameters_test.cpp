// Parameters that are frozen and thawed while their model is wrapped: gradients are those of the same training in one
// process, averaged over the ranks, and what is frozen gets none.
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <string>
#include <vector>

#include <ddprun/ddp/distributed_data_parallel.h>

#include "tests/ddp/support.h"
#include "tests/support/catch.h"
#include "tests/support/every_wire.h"
#include "tests/support/rank_checks.h"

namespace ddp {
namespace {

using Catch::Matchers::ContainsSubstring;
using test::expect_close;
using test::here;
using test::make;
using test::message_of;
using test::numbers;
using test::TwoLayers;

std::vector<DdpOptions> options_with_engines() {
  std::vector<DdpOptions> all{{.find_unused_parameters = true},
                              {.find_unused_parameters = true, .gradient_as_bucket_view = false},
                              {.bucket_cap_bytes = 100, .own_engine = false},
                              {.bucket_cap_bytes = 100, .gradient_as_bucket_view = false}};
  if (!test::is_on_devices()) all.push_back({.bucket_cap_bytes = 100, .own_engine = true});
  return all;
}

void set_trainable(const torch::nn::Linear& layer, bool on) {
  for (torch::Tensor parameter : layer->parameters()) parameter.set_requires_grad(on);
}
void set_trainable(TwoLayers& net, bool first, bool second) {
  set_trainable(net->first, first);
  set_trainable(net->second, second);
}

// What the ranks' gradients must be, of a net with the same weights.
void expect_means(TwoLayers& net, int size, int salt, bool first, bool second) {
  std::vector<torch::Tensor> weights;
  for (const auto& parameter : net->parameters()) weights.push_back(parameter.detach().clone());
  const auto expected = test::mean_gradients<TwoLayers>(3, size, [&](TwoLayers& alone, int rank) {
    const auto parameters = alone->parameters();
    {
      const torch::NoGradGuard no_grad;
      for (size_t i = 0; i < weights.size(); ++i) parameters[i].copy_(weights[i]);
    }
    set_trainable(alone, first, second);
    const auto loss = alone(numbers({3, 6}, rank + 10 * salt)).square().sum();
    if (loss.requires_grad()) loss.backward();
  });
  const auto parameters = net->named_parameters();
  for (size_t i = 0; i < parameters.size(); ++i) {
    RANK_INFO("parameter " << parameters[i].key());
    RANK_REQUIRE(parameters[i].value().grad().defined() == expected[i].defined());
    if (expected[i].defined()) expect_close(parameters[i].value().grad(), expected[i]);
  }
}

TEST_CASE_METHOD(test::EveryWire, "FrozenParameters: a layer is frozen after wrapping and thawed again") {
  const int size = GENERATE(2, 3);
  run(size, [&](const GroupHandle& group) {
    for (const DdpOptions& options : options_with_engines()) {
      for (const bool is_first : {true, false}) {
        RANK_INFO((options.find_unused_parameters ? "find unused " : "")
                  << (options.gradient_as_bucket_view ? "views " : "") << (is_first ? "first" : "second"));
        auto net = make<TwoLayers>(3);
        DistributedDataParallel<TwoLayers> model(net, group, options);
        // Would move what has a gradient of 0.
        torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9).weight_decay(0.1));
        for (int step = 0; step < 9; ++step) {
          RANK_INFO("step " << step);
          const bool frozen = step / 3 == 1;
          set_trainable(net, !frozen || !is_first, !frozen || is_first);
          optimizer.zero_grad();
          const auto first_before = net->first->weight.detach().clone();
          const auto second_before = net->second->weight.detach().clone();
          model(numbers({3, 6}, group.rank() + 10 * step)).square().sum().backward();
          expect_means(net, size, step, !frozen || !is_first, !frozen || is_first);
          optimizer.step();
          RANK_CHECK(first_before.equal(net->first->weight) == (frozen && is_first));
          RANK_CHECK(second_before.equal(net->second->weight) == (frozen && !is_first));
        }
      }
    }
  });
}

TEST_CASE_METHOD(test::EveryWire,
                 "FrozenParameters: what one rank freezes has the gradient of the others on all ranks") {
  const int size = GENERATE(2, 3);
  run(size, [&](const GroupHandle& group) {
    for (const DdpOptions& options : options_with_engines()) {
      auto net = make<TwoLayers>(3);
      DistributedDataParallel<TwoLayers> model(net, group, options);
      for (int step = 0; step < 4; ++step) {
        net->zero_grad();
        set_trainable(net, group.rank() != 0 || step < 2, true);
        model(numbers({3, 6}, group.rank() + 10 * step)).square().sum().backward();
        const auto expected = test::mean_gradients<TwoLayers>(3, size, [&](TwoLayers& alone, int rank) {
          auto loss = alone(numbers({3, 6}, rank + 10 * step)).square().sum();
          loss.backward();
          if (rank != 0 || step < 2) return;
          for (const auto& parameter : alone->first->parameters()) parameter.mutable_grad().zero_();
        });
        for (size_t i = 0; i < expected.size(); ++i) expect_close(net->parameters()[i].grad(), expected[i]);
      }
    }
  });
}

// As a discriminator while its generator is trained.
TEST_CASE_METHOD(test::EveryWire, "FrozenParameters: a forward of a model that is frozen as a whole only hands on") {
  run(2, [&](const GroupHandle& group) {
    auto all = options_with_engines();
    all.push_back({.static_graph = true});
    for (const DdpOptions& options : all) {
      RANK_INFO((options.find_unused_parameters ? "find unused " : "") << (options.static_graph ? "static" : ""));
      auto net = make<TwoLayers>(3);
      DistributedDataParallel<TwoLayers> model(net, group, options);
      for (int step = 0; step < 4; ++step) {
        RANK_INFO("step " << step);
        net->zero_grad();
        set_trainable(net, false, false);
        const auto x = numbers({3, 6}, group.rank()).requires_grad_();
        const auto handed_on = model(x).square().sum();
        set_trainable(net, true, true);  // also where the backward comes later
        handed_on.backward();
        RANK_CHECK(x.grad().defined());
        RANK_CHECK(!net->first->weight.grad().defined());
        model(numbers({3, 6}, group.rank() + 10 * step)).square().sum().backward();
        expect_means(net, 2, step, true, true);
      }
    }
  });
}

TEST_CASE_METHOD(test::EveryWire, "FrozenParameters: between forward and backward") {
  run(2, [&](const GroupHandle& group) {
    for (const DdpOptions& options : options_with_engines()) {
      auto net = make<TwoLayers>(3);
      DistributedDataParallel<TwoLayers> model(net, group, options);
      for (int step = 0; step < 6; ++step) {
        RANK_INFO("step " << step);
        net->zero_grad();
        const bool thaws = step % 2 == 0;
        set_trainable(net, !thaws, true);
        const auto loss = model(numbers({3, 6}, group.rank() + 10 * step)).square().sum();
        set_trainable(net, thaws, true);
        loss.backward();
        expect_means(net, 2, step, false, true);
      }
    }
  });
}

TEST_CASE_METHOD(test::EveryWire, "FrozenParameters: inside join, also of ranks that have finished") {
  run(2, [&](const GroupHandle& group) {
    for (const DdpOptions& options : options_with_engines()) {
      RANK_INFO((options.find_unused_parameters ? "find unused " : "")
                << (options.gradient_as_bucket_view ? "views" : ""));
      auto net = make<TwoLayers>(3);
      DistributedDataParallel<TwoLayers> model(net, group, options);
      model->join([&] {
        for (int step = 0; step < 3 + 3 * group.rank(); ++step) {
          RANK_INFO("step " << step);
          set_trainable(net, step % 3 == 0, step % 3 != 2);
          net->zero_grad();
          const auto x = numbers({3, 6}, group.rank() + 10 * step).requires_grad_();
          model(x).square().sum().backward();
          const auto is_used = [](const torch::Tensor& gradient) {
            return gradient.defined() && gradient.ne(0).any().item<bool>();
          };
          RANK_CHECK(is_used(net->first->weight.grad()) == (step % 3 == 0));
          RANK_CHECK(is_used(net->second->weight.grad()) == (step % 3 != 2));
          if (options.find_unused_parameters)
            continue;  // then a rank that has finished says what was used last, as Python's
          RANK_CHECK(net->first->weight.grad().defined() == (step % 3 == 0));
        }
      });
    }
  });
}

TEST_CASE("FrozenParameters: what was frozen when the model was wrapped is refused when it is thawed") {
  test::run_ranks(2, [](const GroupHandle& group) {
    auto net = make<TwoLayers>(3);
    set_trainable(net, false, true);
    {
      DistributedDataParallel<TwoLayers> model(net, group);
      model(numbers({3, 6}, group.rank())).square().sum().backward();
      set_trainable(net, true, true);
      RANK_CHECK_THAT(message_of([&] {
                        model(numbers({3, 6}, group.rank()));
                      }),
                      ContainsSubstring("rank " + std::to_string(group.rank()) +
                                        " of 2: parameter 'first.weight' was "
                                        "frozen when the model was wrapped") &&
                          ContainsSubstring("wrap the model again"));
    }
    net->zero_grad();
    DistributedDataParallel<TwoLayers> model(net, group);
    model(numbers({3, 6}, group.rank() + 10)).square().sum().backward();
    expect_means(net, 2, 1, true, true);
  });
}

TEST_CASE("FrozenParameters: a static graph in which other parameters are frozen is refused before the step") {
  test::run_ranks(2, [](const GroupHandle& group) {
    auto net = make<TwoLayers>(3);
    DistributedDataParallel<TwoLayers> model(net, group, {.static_graph = true});
    for (int step = 0; step < 2; ++step) model(numbers({3, 6}, group.rank())).square().sum().backward();
    set_trainable(net, false, true);
    RANK_CHECK_THAT(message_of([&] {
                      model(numbers({3, 6}, group.rank())).square().sum().backward();
                    }),
                    ContainsSubstring("first.weight"));
  });
}

}  // namespace
}  // namespace ddp

// Steps that CpuReducer reduces leave what c10d's engine leaves, bit by bit, and fail with its words.
#include <ATen/ops/empty_like.h>
#include <torch/nn/functional/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/optim/sgd.h>

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <ddprun/comm/collectives.h>
#include <ddprun/ddp/comm_hooks.h>
#include <ddprun/ddp/distributed_data_parallel.h>
#include <ddprun/detail/comm/gradient_hook.h>

#include "tests/ddp/again.h"
#include "tests/ddp/support.h"
#include "tests/support/catch.h"
#include "tests/support/every_wire.h"
#include "tests/support/rank_checks.h"

namespace ddp {
namespace {

using Catch::Matchers::ContainsSubstring;
using test::Again;
using test::expect_close;
using test::expect_equal;
using test::make;
using test::message_of;
using test::numbers;
using test::run_ranks;
using test::TwoLayers;
using test::Wire;

// Parameters of several dtypes, sizes and memory formats, also empty and large ones.
struct MixedImpl : torch::nn::Module {
  MixedImpl() { images->weight.set_data(images->weight.detach().contiguous(torch::MemoryFormat::ChannelsLast)); }
  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor seen = images(x.reshape({-1, 3, 4, 4})).flatten(1).tanh();
    const torch::Tensor wide = torch::matmul(seen, large).tanh();
    const torch::Tensor exact = torch::matmul(wide.to(torch::kDouble), doubles).tanh().to(torch::kFloat);
    const torch::Tensor rough = torch::matmul(exact.to(torch::kBFloat16), brains).to(torch::kHalf) * halves;
    return rough.to(torch::kFloat) * scalar + nothing.sum();
  }
  torch::nn::Conv2d images = register_module("images", torch::nn::Conv2d(3, 4, 3));
  torch::Tensor large = register_parameter("large", torch::zeros({16, 1100}));
  torch::Tensor doubles = register_parameter("doubles", torch::zeros({1100, 5}, torch::kDouble));
  torch::Tensor brains = register_parameter("brains", torch::zeros({5, 3}, torch::kBFloat16));
  torch::Tensor halves = register_parameter("halves", torch::zeros({3}, torch::kHalf));
  torch::Tensor scalar = register_parameter("scalar", torch::zeros({}));
  torch::Tensor nothing = register_parameter("nothing", torch::zeros({0, 2}));
};
TORCH_MODULE(Mixed);

using Gradients = std::vector<torch::Tensor>;

template <typename Model>
Gradients gradients_of(const Model& model) {
  Gradients all;
  for (const torch::Tensor& parameter : model->parameters()) {
    all.push_back(parameter.grad().defined() ? parameter.grad().clone() : torch::Tensor());
  }
  return all;
}

// Every way of making room for new gradients, of accumulating and of cutting buckets, step by step.
std::vector<Gradients> train_own(const GroupHandle& group, DdpOptions options, bool own) {
  options.own_engine = own;
  auto net = make<Mixed>(3);
  DistributedDataParallel<Mixed> model(net, group, options);
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(1e-3));
  std::vector<Gradients> steps;
  const auto run = [&](int step) { model(numbers({2, 48}, group.rank() + 10 * step)).square().mean().backward(); };
  for (int step = 0; step < 6; ++step) {
    if (step != 4) optimizer.zero_grad(/*set_to_none=*/step % 3 != 0);  // step 4 adds to what step 3 has left
    if (step % 2 == 1) {
      const auto guard = model->no_sync();
      run(100 + step);
    }
    run(step);
    steps.push_back(gradients_of(net));
    optimizer.step();
  }
  return steps;
}

// Without the stack.
std::string words_of(const std::string& message) {
  return message.substr(0, message.find("\nException raised from"));
}

class CpuReducer {
 protected:
  const Wire wire_ = GENERATE(from_range(test::wires({Wire::kGloo, Wire::kShm, Wire::kLate})));
  FIXTURE_INFO("wire: " << wire_);
};

TEST_CASE_METHOD(CpuReducer, "CpuReducer: every step has the bits of c10d's") {
  const int size = GENERATE(1, 2, 3);
  for (const int64_t cap : {int64_t{300}, int64_t{25} << 20}) {
    run_ranks(size,
              [&](const GroupHandle& group) {
                const DdpOptions options{.bucket_cap_bytes = cap};
                const auto expected = train_own(group, options, false);
                const auto actual = train_own(group, options, true);
                for (size_t step = 0; step < expected.size(); ++step) {
                  for (size_t i = 0; i < expected[step].size(); ++i) {
                    RANK_INFO("cap " << cap << ", step " << step << ", parameter " << i);
                    expect_equal(actual[step][i], expected[step][i]);
                  }
                }
              },
              {.wire = wire_});
  }
}

TEST_CASE_METHOD(CpuReducer, "CpuReducer: ranks of which one leaves the steps to c10d train together") {
  run_ranks(2,
            [&](const GroupHandle& group) {
              const auto expected = train_own(group, {.bucket_cap_bytes = 300}, false);
              const auto actual = train_own(group, {.bucket_cap_bytes = 300}, group.rank() == 1);
              for (size_t i = 0; i < expected.back().size(); ++i) expect_equal(actual.back()[i], expected.back()[i]);
            },
            {.wire = wire_});
}

// Nobody may hold them meanwhile: see held_gradients_test.cpp.
TEST_CASE_METHOD(CpuReducer,
                 "CpuReducer: gradients have the same places in the buckets from step to step and are not views") {
  run_ranks(2,
            [&](const GroupHandle& group) {
              auto net = make<TwoLayers>(1);
              DistributedDataParallel<TwoLayers> model(net, group, {.bucket_cap_bytes = 100, .own_engine = true});
              std::vector<const void*> before;
              for (int step = 0; step < 5; ++step) {
                net->zero_grad();
                model(numbers({2, 6}, step)).sum().backward();
                std::vector<const void*> now;
                for (const torch::Tensor& parameter : net->parameters()) {
                  now.push_back(parameter.grad().const_data_ptr());
                  RANK_CHECK_FALSE(parameter.grad().is_view());
                }
                if (step > 2 && wire_ != Wire::kLate)
                  RANK_CHECK(now == before);  // its thread holds buckets for a moment
                before = now;
              }
            },
            {.wire = wire_});
}

struct HalfUsedImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x, bool both) { return both ? second(first(x)) : first(x); }
  torch::nn::Linear first = register_module("first", torch::nn::Linear(6, 6));
  torch::nn::Linear second = register_module("second", torch::nn::Linear(6, 6));
};
TORCH_MODULE(HalfUsed);

TEST_CASE("CpuReducer: a parameter without gradient is named as by c10d and its gradients stay") {
  run_ranks(2, [](const GroupHandle& group) {
    std::string messages[2];
    for (const bool own : {false, true}) {
      auto net = make<HalfUsed>(2);
      DistributedDataParallel<HalfUsed> model(net, group, {.bucket_cap_bytes = 100, .own_engine = own});
      const torch::Tensor x = numbers({2, 6}, group.rank());
      for (int step = 0; step < 3; ++step) {
        net->zero_grad();
        model(x, true).sum().backward();
      }
      net->zero_grad();
      messages[own] = message_of([&] { model(x, false).sum().backward(); });
      const Gradients left = gradients_of(net);
      RANK_CHECK(words_of(message_of([&] { model(x, true); })) == words_of(messages[own]));
      const Gradients now = gradients_of(net);
      for (size_t i = 0; own && i < 2; ++i) expect_equal(now[i], left[i]);
      RANK_CHECK(words_of(message_of([&] { model(x, true); })) == words_of(messages[own]));
    }
    RANK_CHECK_THAT(messages[1], ContainsSubstring("did not receive grad for rank") && ContainsSubstring("2 3"));
    RANK_CHECK(words_of(messages[0]) == words_of(messages[1]));
  });
}

struct TwiceImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x, int times) {
    torch::Tensor y = in(x);
    for (int i = 0; i < times; ++i) y = Again::apply(y, inner.get());
    return y;
  }
  torch::nn::Linear in = register_module("in", torch::nn::Linear(6, 4));
  torch::nn::Linear inner = register_module("inner", torch::nn::Linear(4, 4));
};
TORCH_MODULE(Twice);

TEST_CASE("CpuReducer: a parameter that is ready twice fails the backward in c10d's words") {
  run_ranks(2, [](const GroupHandle& group) {
    std::string messages[2];
    for (const bool own : {false, true}) {
      auto net = make<Twice>(2);
      DistributedDataParallel<Twice> model(net, group, {.bucket_cap_bytes = 1000, .own_engine = own});
      const torch::Tensor x = numbers({2, 6}, group.rank());
      for (int step = 0; step < 3; ++step) {
        net->zero_grad();
        model(x, 1).sum().backward();
      }
      messages[own] = message_of([&] { model(x, 2).sum().backward(); });
    }
    RANK_CHECK_THAT(messages[1], ContainsSubstring("mark a variable ready only once"));
    RANK_CHECK_THAT(messages[1],
                    ContainsSubstring("DdpOptions::static_graph = true") && !ContainsSubstring("_set_static_graph"));
    RANK_CHECK(words_of(messages[0]) == words_of(messages[1]));
  });
}

TEST_CASE("CpuReducer: gradients with a graph of their own are c10d's, which refuses them") {
  run_ranks(2, [](const GroupHandle& group) {
    std::string messages[2];
    for (const bool own : {false, true}) {
      auto net = make<TwoLayers>(2);
      DistributedDataParallel<TwoLayers> model(net, group, {.own_engine = own});
      const auto loss = [&] { return model(numbers({2, 6}, group.rank())).square().sum(); };
      for (int step = 0; step < 2; ++step) loss().backward();
      net->zero_grad();
      messages[own] = message_of([&] { loss().backward({}, std::nullopt, /*create_graph=*/true); });
    }
    RANK_CHECK(messages[0] != "");
    RANK_CHECK(words_of(messages[0]) == words_of(messages[1]));
  });
}

TEST_CASE("CpuReducer: a gradient that was replaced on its way is named") {
  run_ranks(2, [](const GroupHandle& group) {
    auto net = make<TwoLayers>(2);
    DistributedDataParallel<TwoLayers> model(net, group, {.own_engine = true});
    const auto step = [&] { model(numbers({2, 6}, group.rank())).square().sum().backward(); };
    for (int i = 0; i < 2; ++i) step();
    const torch::Tensor weight = net->second->weight;
    const GradientHook hook(weight, [&] { weight.mutable_grad() = weight.grad().clone(); });
    RANK_CHECK_THAT(message_of(step), ContainsSubstring("the gradient of parameter 'second.weight' was replaced"));
  });
}

TEST_CASE("CpuReducer: a backward whose end was not reached is named at the next forward") {
  run_ranks(2, [](const GroupHandle& group) {
    auto net = make<TwoLayers>(2);
    DistributedDataParallel<TwoLayers> model(net, group, {.own_engine = true});
    const torch::Tensor x = numbers({2, 6}, group.rank());
    for (int i = 0; i < 2; ++i) model(x).sum().backward();
    int gradients = 0;
    std::vector<GradientHook> hooks;
    for (const torch::Tensor& parameter : net->parameters()) {
      hooks.emplace_back(parameter, [&gradients] {
        if (++gradients == 4) throw std::domain_error("mine");
      });
    }
    RANK_CHECK_THAT(message_of([&] { model(x).sum().backward(); }), ContainsSubstring("mine"));
    RANK_CHECK_THAT(message_of([&] { model(x); }),
                    ContainsSubstring("the last backward has thrown while gradients were being reduced"));
  });
}

TEST_CASE("CpuReducer: joined ranks and hooks are c10d's and steps in between its own") {
  for (const bool own : {false, true}) {
    run_ranks(2, [&](const GroupHandle& group) {
      auto net = make<TwoLayers>(1);
      DistributedDataParallel<TwoLayers> model(net, group, {.bucket_cap_bytes = 100, .own_engine = own});
      const auto step = [&](int number) {
        net->zero_grad();
        model(numbers({2, 6}, group.rank() + 10 * number)).sum().backward();
      };
      for (int i = 0; i < 3; ++i) step(i);
      model->join([&] {
        for (int i = 0; i < 2 + group.rank(); ++i) step(i);
      });
      step(7);
      const auto expected = test::mean_gradients<TwoLayers>(1, 2, [&](TwoLayers& alone, int rank) {
        alone(numbers({2, 6}, rank + 70)).sum().backward();
      });
      const auto parameters = net->parameters();
      for (size_t i = 0; i < parameters.size(); ++i) expect_close(parameters[i].grad(), expected[i]);
    });
  }
  run_ranks(2, [&](const GroupHandle& group) {
    auto net = make<TwoLayers>(1);
    DistributedDataParallel<TwoLayers> model(net, group);
    for (int i = 0; i < 3; ++i) model(numbers({2, 6}, group.rank())).sum().backward();
    model->register_comm_hook(hooks::noop());
    net->zero_grad();
    model(numbers({2, 6}, group.rank())).sum().backward();
    auto alone = make<TwoLayers>(1);
    alone(numbers({2, 6}, group.rank())).sum().backward();
    expect_close(net->first->weight.grad(), alone->first->weight.grad());
  });
}

TEST_CASE("CpuReducer: what it cannot do is refused where it is demanded") {
  run_ranks(2, [](const GroupHandle& group) {
    const auto message = [&](DdpOptions options) {
      options.own_engine = true;
      return message_of([&] { DistributedDataParallel<TwoLayers>(make<TwoLayers>(1), group, options); });
    };
    const std::vector<std::pair<DdpOptions, std::string>> cases{
        {{.find_unused_parameters = true}, "find_unused_parameters"},
        {{.static_graph = true}, "static_graph"},
        {{.gradient_as_bucket_view = false}, "gradient_as_bucket_view = false"},
        {{.comm_hook = hooks::noop()}, "comm_hook"}};
    for (const auto& [options, name] : cases) {
      RANK_CHECK_THAT(message(options), ContainsSubstring("own_engine cannot be combined with " + name));
    }
    DistributedDataParallel<TwoLayers> model(make<TwoLayers>(1), group, {.own_engine = true});
    RANK_CHECK_THAT(message_of([&] { model->register_comm_hook(hooks::noop()); }),
                    ContainsSubstring("own_engine cannot be combined with comm_hook"));
  });
}

}  // namespace
}  // namespace ddp

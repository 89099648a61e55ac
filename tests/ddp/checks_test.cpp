#include <torch/headeronly/version.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/optim/sgd.h>

#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include <ddprun/comm/collectives.h>
#include <ddprun/ddp/distributed_data_parallel.h>
#include <ddprun/detail/comm/wrapped_parameters.h>

#include "comm/group/verify_across_ranks.h"
#include "tests/ddp/support.h"
#include "tests/support/catch.h"
#include "tests/support/placement.h"
#include "tests/support/rank_checks.h"

namespace ddp {
namespace {

using Catch::Matchers::ContainsSubstring;
using test::expect_equal;
using test::here;
using test::make;
using test::message_of;
using test::numbers;
using test::run_ranks;
using test::TwoLayers;
using test::Wire;

struct OtherImpl : torch::nn::Module {
  explicit OtherImpl(int64_t width = 8, bool swapped = false, bool bias = true) {
    const auto add_first = [&] { register_module("first", torch::nn::Linear(6, width)); };
    if (!swapped) add_first();
    register_module("second", torch::nn::Linear(torch::nn::LinearOptions(8, 3).bias(bias)));
    if (swapped) add_first();
  }
  torch::Tensor forward(const torch::Tensor& x) { return x; }
};
TORCH_MODULE(Other);

struct Swappable : torch::nn::Module {
  Swappable() { register_parameter("scale", torch::ones({1})); }
  torch::Tensor forward(const torch::Tensor& x) { return x * parameters_["scale"]; }
  void swap() { parameters_["scale"] = here(torch::ones({1})).requires_grad_(); }
};

TEST_CASE("Checks: every rank names the first parameter that differs and both values") {
  struct Difference {
    std::function<Other()> on_rank_1;
    std::string expected;
  };
  const std::vector<Difference> differences{
      {[] { return Other(9); },
       "rank 1 has parameter 'first.weight' Float [9, 6] that requires a gradient, the others "
       "parameter 'first.weight' Float [8, 6]"},
      {[] { return Other(8, true); },
       "rank 1 has parameter 'second.weight' Float [3, 8] that requires a gradient, the others "
       "parameter 'first.weight' Float [8, 6]"},
      {[] { return Other(8, false, false); },
       "rank 1 has nothing more, the others parameter 'second.bias' Float [3] that requires a gradient"},
      {[] {
         Other net;
         net->to(torch::kDouble);
         return net;
       },
       "rank 1 has parameter 'first.weight' Double [8, 6]"},
      {[] {
         Other net;
         net->parameters()[1].set_requires_grad(false);
         return net;
       },
       "rank 1 has parameter 'first.bias' Float [8], the others parameter 'first.bias' Float [8] that requires a "
       "gradient"}};
  for (const Difference& difference : differences) {
    run_ranks(3, [&](const GroupHandle& group) {
      const std::string message = message_of(
          [&] { DistributedDataParallel<Other>(group.rank() == 1 ? difference.on_rank_1() : Other(), group); });
      RANK_CHECK_THAT(message, ContainsSubstring(who(group.info()) + ": the ranks' models differ") &&
                                   ContainsSubstring(difference.expected));
    });
  }
}

TEST_CASE("Checks: options that differ are named") {
  run_ranks(2, [](const GroupHandle& group) {
    RANK_CHECK_THAT(
        message_of([&] {
          DistributedDataParallel<TwoLayers>(make<TwoLayers>(0), group, {.find_unused_parameters = group.rank() == 1});
        }),
        ContainsSubstring("rank 0 has option find_unused_parameters = false, rank 1 has option find_unused_parameters "
                          "= true"));
  });
}

TEST_CASE("Checks: a rank that wraps nothing is named at the timeout") {
  run_ranks(2,
            [](const GroupHandle& group) {
              if (group.rank() == 1) return;
              RANK_CHECK_THAT(message_of([&] { DistributedDataParallel<TwoLayers>(make<TwoLayers>(0), group); }),
                              ContainsSubstring("cannot be compared: waited for rank 1"));
            },
            {.timeout = std::chrono::seconds(1)});
}

TEST_CASE("Checks: what changes after wrapping is named at the next forward") {
  run_ranks(1, [](const GroupHandle& group) {
    const auto after = [&](const std::function<void(TwoLayers&)>& change) {
      auto net = make<TwoLayers>(0);
      DistributedDataParallel<TwoLayers> model(net, group);
      model(numbers({1, 6}, 0)).sum().backward();
      change(net);
      return message_of([&] { model(numbers({1, 6}, 0)); });
    };
    RANK_CHECK(after([](TwoLayers&) {}) == "");
    RANK_CHECK_THAT(after([](TwoLayers& net) { net->second->bias.set_data(net->second->bias.to(torch::kDouble)); }),
                    ContainsSubstring("parameter 'second.bias' was cast from Float to Double"));
    RANK_CHECK_THAT(after([](TwoLayers& net) { net->second->bias.set_data(here(torch::zeros({4}))); }),
                    ContainsSubstring("parameter 'second.bias' was resized from [3] to [4]"));
    RANK_CHECK_THAT(after([](TwoLayers& net) { net->first->register_parameter("scale", torch::ones({1})); }),
                    ContainsSubstring("parameter 'first.scale' was added"));
    RANK_CHECK_THAT(after([](TwoLayers& net) { net->register_module("third", torch::nn::Linear(1, 1)); }),
                    ContainsSubstring("submodule 'third' was added or replaced (with parameter 'third.weight')"));
    RANK_CHECK_THAT(after([](TwoLayers& net) { net->replace_module("second", torch::nn::Linear(8, 3)); }),
                    ContainsSubstring("submodule 'second' was added or replaced"));
    const auto swappable = std::make_shared<Swappable>();
    DistributedDataParallel<std::shared_ptr<Swappable>> model(swappable, group);
    swappable->swap();
    RANK_CHECK_THAT(message_of([&] { model(here(torch::ones({1}))); }),
                    ContainsSubstring("rank 0 of 1: parameter 'scale' was replaced after the model was wrapped"));
  });
}

TEST_CASE("Checks: a wrapped module is known as such until its wrapper is gone") {
  run_ranks(1, [](const GroupHandle& group) {
    auto net = make<TwoLayers>(0);
    RANK_CHECK_FALSE(is_wrapped(*net));
    {
      DistributedDataParallel<TwoLayers> model(net, group);
      RANK_CHECK(is_wrapped(*net));
      RANK_CHECK(is_wrapped(*net->second));
      RANK_CHECK(is_wrapped(*model));
      RANK_CHECK_THAT(message_of([&] { DistributedDataParallel<TwoLayers>(net, group); }),
                      ContainsSubstring("already wrapped in DistributedDataParallel"));
      RANK_CHECK_THAT(message_of([&] { require_unwrapped(*net, "convert_sync_batchnorm()"); }),
                      ContainsSubstring("The right order: "));
    }
    RANK_CHECK_FALSE(is_wrapped(*net));
    require_unwrapped(*net, "anything");
    DistributedDataParallel<TwoLayers> again(net, group);
  });
}

TEST_CASE("Checks: the wrapper cannot be cloned, but the model in it can") {
  run_ranks(1, [](const GroupHandle& group) {
    auto net = test::placed(torch::nn::Linear(6, 2));
    DistributedDataParallel<torch::nn::Linear> model(net, group);
    RANK_CHECK_THAT(
        message_of([&] { model->clone(); }),
        ContainsSubstring("DistributedDataParallel is a wrapper and cannot be cloned: clone the model in it, "
                          "wrapper->module()->clone()"));
    RANK_CHECK(model->module()->clone()->parameters().at(0).equal(net->weight));
  });
}

struct CountingImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) { return x * weight; }
  torch::Tensor weight = register_parameter("weight", torch::ones({2}));
  torch::Tensor counts = register_buffer("counts", torch::zeros({3}, torch::kShort));
};
TORCH_MODULE(Counting);

TEST_CASE("Checks: a buffer of a dtype that the backend lacks is named") {
  if (test::is_on_devices()) SKIP("NCCL takes bytes of any dtype");
  run_ranks(2, [](const GroupHandle& group) {
    const auto message = [&](const DdpOptions& options) {
      return message_of([&] { DistributedDataParallel<Counting>(make<Counting>(0), group, options); });
    };
    const std::string expected = "DistributedDataParallel: buffer 'counts': ";
    for (const DdpOptions& options : {DdpOptions(), DdpOptions{.init_sync = false},
                                      DdpOptions{.broadcast_buffers = false, .forward_sync_buffers = true}}) {
      RANK_CHECK_THAT(message(options), ContainsSubstring(expected) && ContainsSubstring("do not support Short") &&
                                            ContainsSubstring("or name it in DdpOptions::ignored"));
    }
    RANK_CHECK(message({.broadcast_buffers = false}).empty());
    RANK_CHECK(message({.ignored = {"counts"}}).empty());
  });
}

TEST_CASE("Checks: unused parameters are named") {
  run_ranks(2, [](const GroupHandle& group) {
    auto net = make<TwoLayers>(0);
    DistributedDataParallel<TwoLayers> model(net, group);
    model(numbers({1, 6}, 0));
    RANK_CHECK_THAT(message_of([&] {
                      net->first(numbers({1, 6}, 0)).sum().backward();
                    }),
                    ContainsSubstring("Expected to have finished reduction in the prior iteration") &&
                        ContainsSubstring("did not receive grad for rank " + std::to_string(group.rank()) +
                                          ": second.weight, second.bias") &&
                        ContainsSubstring("did not receive grad for rank " + std::to_string(group.rank()) + ": 2 3"));
  });
}

TEST_CASE("Checks: contradicting or unknown options are refused") {
  run_ranks(1, [](const GroupHandle& group) {
    const auto message = [&](const DdpOptions& options) {
      return message_of([&] { DistributedDataParallel<TwoLayers>(make<TwoLayers>(0), group, options); });
    };
    RANK_CHECK_THAT(message({.first_bucket_bytes = 0}), ContainsSubstring("both must be positive"));
    RANK_CHECK_THAT(message({.delayed = {.names = {"first.weight"}}}), ContainsSubstring("must be set together"));
    RANK_CHECK_THAT(message({.delayed = {.names = {"first.weight"}, .trigger = "first.weight"}}),
                    ContainsSubstring("must not be one of delayed.names"));
    RANK_CHECK_THAT(message({.delayed = {.names = {"nothing"}, .trigger = "first.weight"}}),
                    ContainsSubstring("'nothing' is not a parameter"));
    RANK_CHECK_THAT(message({.bucket_ends = {"nothing"}}), ContainsSubstring("'nothing', which is not a parameter"));
    if (TORCH_VERSION_MINOR < 12) {
      RANK_CHECK_THAT(message({.batched_grad_copy = true}),
                      ContainsSubstring("batched_grad_copy needs LibTorch 2.12 or newer, this is 2."));
    }
    if (TORCH_VERSION_MINOR < 15) {
      RANK_CHECK_THAT(message({.lazy_bucket_allocation = true}),
                      ContainsSubstring("lazy_bucket_allocation needs LibTorch 2.15 or newer, this is 2."));
    }
    RANK_CHECK_THAT(message({.skip_all_reduce_unused_params = true}),
                    ContainsSubstring("needs find_unused_parameters"));
    RANK_CHECK_THAT(message({.bucket_cap_bytes = kAutoBucketCap, .bucket_ends = {"first.weight"}}),
                    ContainsSubstring("cannot be combined"));
    RANK_CHECK_THAT(message({.ignored = {"first.weight", "first.bias", "second.weight", "second.bias"}}),
                    ContainsSubstring("doesn't have any parameter that requires a gradient"));
  });
}

TEST_CASE("Checks: a gradient that is not finite is named before it spreads") {
  run_ranks(
      2,
      [](const GroupHandle& group) {
        auto net = make<TwoLayers>(0);
        DistributedDataParallel<TwoLayers> model(net, group, {.check_gradients = true});
        model(numbers({1, 6}, 0)).sum().backward();
        const float factor = group.rank() == 1 ? std::numeric_limits<float>::quiet_NaN() : 1.F;
        const std::string message = message_of([&] { (model(numbers({1, 6}, 0)) * factor).sum().backward(); });
        if (group.rank() == 1) {
          RANK_CHECK_THAT(message, ContainsSubstring("rank 1 of 2: a gradient is NaN or infinite before its reduction: "
                                                     "parameter '"));
        } else {
          RANK_CHECK_THAT(message, ContainsSubstring("rank 0 of 2: all_reduce of a gradient bucket of 332 bytes") &&
                                       ContainsSubstring("failed: ") &&
                                       ContainsSubstring("did not take part in it: rank 1"));
        }
        RANK_CHECK_THAT(message_of([&] {
                          model(numbers({1, 6}, 0));
                        }),
                        ContainsSubstring("an earlier backward failed, so the ranks' gradients differ"));
      },
      {.timeout = std::chrono::seconds(2)});
}

TEST_CASE("Checks: gradients of before wrapping can be zeroed in both ways") {
  run_ranks(2, [](const GroupHandle& group) {
    for (const bool set_to_none : {false, true}) {
      auto net = make<TwoLayers>(1);
      net(numbers({2, 6}, 0)).sum().backward();
      DistributedDataParallel<TwoLayers> model(net, group);
      torch::optim::SGD optimizer(net->parameters(), 0.1);
      {
        RANK_INFO("after wrapping");
        RANK_CHECK(message_of([&] { optimizer.zero_grad(set_to_none); }) == "");
      }
      model(numbers({2, 6}, group.rank())).sum().backward();
      RANK_INFO("after a backward");
      RANK_CHECK(message_of([&] { optimizer.zero_grad(set_to_none); }) == "");
    }
  });
}

TEST_CASE("Checks: a model that is wrapped again after unfreezing keeps its gradients") {
  run_ranks(2, [](const GroupHandle& group) {
    auto net = make<TwoLayers>(1);
    net->second->weight.set_requires_grad(false);
    {
      DistributedDataParallel<TwoLayers> model(net, group);
      model(numbers({2, 6}, group.rank())).sum().backward();
    }
    const torch::Tensor before = net->first->weight.grad().clone();
    net->second->weight.set_requires_grad(true);
    DistributedDataParallel<TwoLayers> model(net, group);
    expect_equal(net->first->weight.grad(), before);
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    RANK_CHECK(message_of([&] { optimizer.zero_grad(false); }) == "");
  });
}

TEST_CASE("Checks: gradients can be zeroed after a backward in which a hook threw") {
  run_ranks(2, [](const GroupHandle& group) {
    auto net = make<TwoLayers>(1);
    DistributedDataParallel<TwoLayers> model(net, group);
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    for (int step = 0; step < 2; ++step) model(numbers({2, 6}, group.rank())).sum().backward();
    // The gradients of the second layer are there when the first layer's come.
    net->first->weight.register_hook([](const torch::Tensor&) -> torch::Tensor { throw std::runtime_error("no"); });
    RANK_CHECK_THAT(message_of([&] {
                      model(numbers({2, 6}, group.rank())).sum().backward();
                    }),
                    ContainsSubstring("no"));
    RANK_CHECK(message_of([&] { optimizer.zero_grad(false); }) == "");
    RANK_CHECK(message_of([&] { optimizer.zero_grad(true); }) == "");
  });
}

TEST_CASE("Checks: moving a wrapped model is refused in every spelling") {
  run_ranks(1, [](const GroupHandle& group) {
    auto net = make<TwoLayers>(1);
    DistributedDataParallel<TwoLayers> model(net, group);
    for (const auto& move : std::vector<std::function<void()>>{
             [&] { model->to(torch::kCUDA); }, [&] { model->to(torch::kDouble); },
             [&] { model->to(torch::kCPU, torch::kDouble); }, [&] { model->to(torch::kCPU, /*non_blocking=*/true); }}) {
      RANK_CHECK_THAT(message_of(move), ContainsSubstring("DistributedDataParallel"));
    }
  });
}

struct NormedOutputImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) { return norm(linear(x)); }
  torch::nn::Linear linear = register_module("linear", torch::nn::Linear(6, 4));
  torch::nn::BatchNorm1d norm = register_module("norm", torch::nn::BatchNorm1d(4));
};
TORCH_MODULE(NormedOutput);

TEST_CASE("Checks: two forwards may precede one backward with batch norm") {
  run_ranks(2, [](const GroupHandle& group) {
    auto net = make<NormedOutput>(1);
    DistributedDataParallel<NormedOutput> model(net, group);
    RANK_CHECK(message_of([&] {
                 const auto first = model(numbers({3, 6}, group.rank()));
                 const auto second = model(numbers({3, 6}, 10 + group.rank()));
                 (first.square().sum() + second.square().sum()).backward();
               }) == "");
    RANK_CHECK(net->linear->weight.grad().defined());
  });
}

TEST_CASE("Checks: settings that change what is sent are compared") {
  const auto refusal = [](const DdpOptions& on_rank_1) {
    std::string message;
    std::mutex mutex;
    run_ranks(2, [&](const GroupHandle& group) {
      auto net = make<TwoLayers>(1);
      const std::string text = message_of(
          [&] { DistributedDataParallel<TwoLayers>(net, group, group.rank() == 0 ? DdpOptions{} : on_rank_1); });
      const std::lock_guard lock(mutex);
      message += text;
    });
    return message;
  };
  CHECK_THAT(refusal({.comm_hook = [](GradientBucket&) -> TensorFuture { return {}; }}),
             ContainsSubstring("comm_hook"));
  CHECK_THAT(refusal({.bucket_ends = {"second.weight"}}), ContainsSubstring("bucket_ends = second.weight"));
  CHECK_THAT(refusal({.delayed = {.names = {"second.weight"}, .trigger = "first.weight"}}),
             ContainsSubstring("delayed = second.weight with first.weight"));
}

TEST_CASE("Agreement: passes equal lines again and again and leaves nothing in the way") {
  run_ranks(4, [](const GroupHandle& group) {
    for (int i = 0; i < 20; ++i) verify_equal_across_ranks("things", {"one", "two"}, group);
    RANK_CHECK_THAT(message_of([&] {
                      verify_equal_across_ranks("things", {"one", group.rank() == 2 ? "three" : "two"}, group);
                    }),
                    ContainsSubstring("things differ; the first difference: rank 2 has three, the others two"));
  });
}

}  // namespace
}  // namespace ddp

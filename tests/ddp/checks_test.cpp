#include <torch/nn/modules/batchnorm.h>
#include <torch/optim/sgd.h>

#include <limits>
#include <mutex>
#include <stdexcept>

#include "comm/agreement.h"
#include "comm/collectives.h"
#include "comm/wrap_mark.h"
#include "ddp/distributed_data_parallel.h"
#include "tests/ddp/support.h"

namespace ddp {
namespace {

using test::expect_equal;
using test::make;
using test::message_of;
using test::numbers;
using test::run_ranks;
using test::TwoLayers;
using test::Wire;
using testing::AllOf;
using testing::HasSubstr;

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
  void swap() { parameters_["scale"] = torch::ones({1}).requires_grad_(); }
};

TEST(Checks, every_rank_names_the_first_parameter_that_differs_and_both_values) {
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
       "rank 1 has parameter 'first.bias' Float [8], the others parameter 'first.bias' Float [8] that requires a gradient"}};
  for (const Difference& difference : differences) {
    run_ranks(3, [&](const GroupHandle& group) {
      const std::string message = message_of(
          [&] { DistributedDataParallel<Other>(group.rank() == 1 ? difference.on_rank_1() : Other(), group); });
      EXPECT_THAT(message,
                  AllOf(HasSubstr(who(group.info()) + ": the ranks' models differ"), HasSubstr(difference.expected)));
    });
  }
}

TEST(Checks, options_that_differ_are_named) {
  run_ranks(2, [](const GroupHandle& group) {
    EXPECT_THAT(message_of([&] {
                  DistributedDataParallel<TwoLayers>(make<TwoLayers>(0), group,
                                                     {.find_unused_parameters = group.rank() == 1});
                }),
                HasSubstr("rank 0 has option find_unused_parameters = false, rank 1 has option find_unused_parameters "
                          "= true"));
  });
}

TEST(Checks, a_rank_that_wraps_nothing_is_named_at_the_timeout) {
  run_ranks(2,
            [](const GroupHandle& group) {
              if (group.rank() == 1) return;
              EXPECT_THAT(message_of([&] { DistributedDataParallel<TwoLayers>(make<TwoLayers>(0), group); }),
                          HasSubstr("rank 0 of 2: waited for rank 1"));
            },
            {.timeout = std::chrono::seconds(1)});
}

TEST(Checks, what_changes_after_wrapping_is_named_at_the_next_forward) {
  run_ranks(1, [](const GroupHandle& group) {
    const auto after = [&](const std::function<void(TwoLayers&)>& change) {
      auto net = make<TwoLayers>(0);
      DistributedDataParallel<TwoLayers> model(net, group);
      model(numbers({1, 6}, 0)).sum().backward();
      change(net);
      return message_of([&] { model(numbers({1, 6}, 0)); });
    };
    EXPECT_EQ(after([](TwoLayers&) {}), "");
    EXPECT_THAT(after([](TwoLayers& net) { net->first->weight.set_requires_grad(false); }),
                HasSubstr("parameter 'first.weight' had requires_grad set to false"));
    EXPECT_THAT(after([](TwoLayers& net) { net->second->bias.set_data(net->second->bias.to(torch::kDouble)); }),
                HasSubstr("parameter 'second.bias' was cast from Float to Double"));
    EXPECT_THAT(after([](TwoLayers& net) { net->second->bias.set_data(torch::zeros({4})); }),
                HasSubstr("parameter 'second.bias' was resized from [3] to [4]"));
    EXPECT_THAT(after([](TwoLayers& net) { net->first->register_parameter("scale", torch::ones({1})); }),
                HasSubstr("parameter 'first.scale' was added"));
    EXPECT_THAT(after([](TwoLayers& net) { net->register_module("third", torch::nn::Linear(1, 1)); }),
                HasSubstr("submodule 'third' was added or replaced (with parameter 'third.weight')"));
    EXPECT_THAT(after([](TwoLayers& net) { net->replace_module("second", torch::nn::Linear(8, 3)); }),
                HasSubstr("submodule 'second' was added or replaced"));
    const auto swappable = std::make_shared<Swappable>();
    DistributedDataParallel<std::shared_ptr<Swappable>> model(swappable, group);
    swappable->swap();
    EXPECT_THAT(message_of([&] { model(torch::ones({1})); }),
                HasSubstr("rank 0 of 1: parameter 'scale' was replaced after the model was wrapped"));
  });
}

TEST(Checks, a_wrapped_module_is_known_as_such_until_its_wrapper_is_gone) {
  run_ranks(1, [](const GroupHandle& group) {
    auto net = make<TwoLayers>(0);
    EXPECT_FALSE(is_wrapped(*net));
    {
      DistributedDataParallel<TwoLayers> model(net, group);
      EXPECT_TRUE(is_wrapped(*net));
      EXPECT_TRUE(is_wrapped(*net->second));
      EXPECT_TRUE(is_wrapped(*model));
      EXPECT_THAT(message_of([&] { DistributedDataParallel<TwoLayers>(net, group); }),
                  HasSubstr("already wrapped in DistributedDataParallel"));
      EXPECT_THAT(message_of([&] { require_unwrapped(*net, "convert_sync_batchnorm()"); }),
                  HasSubstr("The right order: "));
    }
    EXPECT_FALSE(is_wrapped(*net));
    require_unwrapped(*net, "anything");
    DistributedDataParallel<TwoLayers> again(net, group);
  });
}

TEST(Checks, unused_parameters_are_named) {
  run_ranks(2, [](const GroupHandle& group) {
    auto net = make<TwoLayers>(0);
    DistributedDataParallel<TwoLayers> model(net, group);
    model(numbers({1, 6}, 0));
    net->first(numbers({1, 6}, 0)).sum().backward();
    EXPECT_THAT(message_of([&] {
                  model(numbers({1, 6}, 0));
                }),
                AllOf(HasSubstr("Expected to have finished reduction in the prior iteration"),
                      HasSubstr("did not receive grad for rank " + std::to_string(group.rank()) +
                                ": second.weight, second.bias"),
                      HasSubstr("did not receive grad for rank " + std::to_string(group.rank()) + ": 2 3")));
  });
}

TEST(Checks, contradicting_or_unknown_options_are_refused) {
  run_ranks(1, [](const GroupHandle& group) {
    const auto message = [&](const DdpOptions& options) {
      return message_of([&] { DistributedDataParallel<TwoLayers>(make<TwoLayers>(0), group, options); });
    };
    EXPECT_THAT(message({.first_bucket_bytes = 0}), HasSubstr("both must be positive"));
    EXPECT_THAT(message({.delayed = {.names = {"first.weight"}}}), HasSubstr("at the same time"));
    EXPECT_THAT(message({.delayed = {.names = {"nothing"}, .trigger = "first.weight"}}),
                HasSubstr("'nothing' is no parameter"));
    EXPECT_THAT(message({.bucket_ends = {"nothing"}}), HasSubstr("'nothing', which is no parameter"));
    EXPECT_THAT(message({.skip_all_reduce_unused_params = true}), HasSubstr("needs find_unused_parameters"));
    EXPECT_THAT(message({.bucket_cap_bytes = kAutoBucketCap, .bucket_ends = {"first.weight"}}),
                HasSubstr("exclude each other"));
    EXPECT_THAT(message({.ignored = {"first.weight", "first.bias", "second.weight", "second.bias"}}),
                HasSubstr("doesn't have any parameter that requires a gradient"));
  });
}

TEST(Checks, a_gradient_that_is_not_finite_is_named_before_it_spreads) {
  run_ranks(2,
            [](const GroupHandle& group) {
              auto net = make<TwoLayers>(0);
              DistributedDataParallel<TwoLayers> model(net, group, {.check_gradients = true});
              model(numbers({1, 6}, 0)).sum().backward();
              const float factor = group.rank() == 1 ? std::numeric_limits<float>::quiet_NaN() : 1.F;
              const std::string message = message_of([&] { (model(numbers({1, 6}, 0)) * factor).sum().backward(); });
              if (group.rank() == 1) {
                EXPECT_THAT(message, HasSubstr("rank 1 of 2: a gradient is NaN or infinite before its reduction: "
                                               "parameter '"));
              } else {
                EXPECT_THAT(message, AllOf(HasSubstr("rank 0 of 2: all_reduce of a gradient bucket of 332 bytes"),
                                           HasSubstr("failed: "), HasSubstr("did not take part in it: rank 1")));
              }
              EXPECT_THAT(message_of([&] {
                            model(numbers({1, 6}, 0));
                          }),
                          HasSubstr("an earlier backward failed, so the ranks' gradients differ"));
            },
            {.timeout = std::chrono::seconds(2)});
}

TEST(Checks, gradients_of_before_wrapping_can_be_zeroed_in_both_ways) {
  run_ranks(2, [](const GroupHandle& group) {
    for (const bool set_to_none : {false, true}) {
      auto net = make<TwoLayers>(1);
      net(numbers({2, 6}, 0)).sum().backward();
      DistributedDataParallel<TwoLayers> model(net, group);
      torch::optim::SGD optimizer(net->parameters(), 0.1);
      EXPECT_EQ(message_of([&] { optimizer.zero_grad(set_to_none); }), "") << "after wrapping";
      model(numbers({2, 6}, group.rank())).sum().backward();
      EXPECT_EQ(message_of([&] { optimizer.zero_grad(set_to_none); }), "") << "after a backward";
    }
  });
}

TEST(Checks, a_model_that_is_wrapped_again_after_unfreezing_keeps_its_gradients) {
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
    EXPECT_EQ(message_of([&] { optimizer.zero_grad(false); }), "");
  });
}

TEST(Checks, gradients_can_be_zeroed_after_a_backward_in_which_a_hook_threw) {
  run_ranks(2, [](const GroupHandle& group) {
    auto net = make<TwoLayers>(1);
    DistributedDataParallel<TwoLayers> model(net, group);
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    for (int step = 0; step < 2; ++step) model(numbers({2, 6}, group.rank())).sum().backward();
    // The gradients of the second layer are there when the first layer's come.
    net->first->weight.register_hook([](const torch::Tensor&) -> torch::Tensor { throw std::runtime_error("no"); });
    EXPECT_THAT(message_of([&] { model(numbers({2, 6}, group.rank())).sum().backward(); }), HasSubstr("no"));
    EXPECT_EQ(message_of([&] { optimizer.zero_grad(false); }), "");
    EXPECT_EQ(message_of([&] { optimizer.zero_grad(true); }), "");
  });
}

TEST(Checks, moving_a_wrapped_model_is_refused_in_every_spelling) {
  run_ranks(1, [](const GroupHandle& group) {
    auto net = make<TwoLayers>(1);
    DistributedDataParallel<TwoLayers> model(net, group);
    for (const auto& move : std::vector<std::function<void()>>{
             [&] { model->to(torch::kCUDA); }, [&] { model->to(torch::kDouble); },
             [&] { model->to(torch::kCPU, torch::kDouble); }, [&] { model->to(torch::kCPU, /*non_blocking=*/true); }}) {
      EXPECT_THAT(message_of(move), HasSubstr("DistributedDataParallel"));
    }
  });
}

struct NormedImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) { return norm(linear(x)); }
  torch::nn::Linear linear = register_module("linear", torch::nn::Linear(6, 4));
  torch::nn::BatchNorm1d norm = register_module("norm", torch::nn::BatchNorm1d(4));
};
TORCH_MODULE(Normed);

TEST(Checks, two_forwards_may_precede_one_backward_with_batch_norm) {
  run_ranks(2, [](const GroupHandle& group) {
    auto net = make<Normed>(1);
    DistributedDataParallel<Normed> model(net, group);
    EXPECT_EQ(message_of([&] {
                const auto first = model(numbers({3, 6}, group.rank()));
                const auto second = model(numbers({3, 6}, 10 + group.rank()));
                (first.square().sum() + second.square().sum()).backward();
              }),
              "");
    EXPECT_TRUE(net->linear->weight.grad().defined());
  });
}

TEST(Checks, settings_that_change_what_is_sent_are_compared) {
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
  EXPECT_THAT(refusal({.comm_hook = [](GradientBucket&) -> TensorFuture { return {}; }}), HasSubstr("comm_hook"));
  EXPECT_THAT(refusal({.bucket_ends = {"second.weight"}}), HasSubstr("bucket_ends = second.weight"));
  EXPECT_THAT(refusal({.delayed = {.names = {"second.weight"}, .trigger = "first.weight"}}),
              HasSubstr("delayed = second.weight with first.weight"));
}

TEST(Agreement, passes_equal_lines_again_and_again_and_leaves_nothing_in_the_way) {
  run_ranks(4, [](const GroupHandle& group) {
    for (int i = 0; i < 20; ++i) require_equal_lines("things", {"one", "two"}, group);
    EXPECT_THAT(message_of([&] {
                  require_equal_lines("things", {"one", group.rank() == 2 ? "three" : "two"}, group);
                }),
                HasSubstr("things differ; the first difference: rank 2 has three, the others two"));
  });
}

}  // namespace
}  // namespace ddp

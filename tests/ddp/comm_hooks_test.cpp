#include "ddp/comm_hooks.h"

#include <torch/optim/sgd.h>

#include <stdexcept>

#include "comm/collectives.h"
#include "ddp/apex_settings.h"
#include "ddp/distributed_data_parallel.h"
#include "ddp/post_local_sgd.h"
#include "ddp/power_sgd.h"
#include "tests/ddp/support.h"

namespace ddp {
namespace {

using test::expect_close;
using test::expect_equal;
using test::make;
using test::mean_gradients;
using test::message_of;
using test::numbers;
using test::run_ranks;
using test::TwoLayers;
using test::Wire;
using testing::AllOf;
using testing::HasSubstr;

class Hooks : public testing::TestWithParam<Wire> {
 protected:
  static void run(int size, const std::function<void(const GroupHandle&)>& body) {
    run_ranks(size, body, {.wire = GetParam()});
  }

  // Trains some steps with small buckets and returns the last step's gradients.
  static std::vector<torch::Tensor> gradients(TwoLayers& net, const GroupHandle& group, DdpOptions options,
                                              int steps = 3) {
    options.bucket_cap_bytes = 100;
    DistributedDataParallel<TwoLayers> model(net, group, options);
    for (int step = 0; step < steps; ++step) {
      net->zero_grad();
      model(numbers({2, 6}, group.rank())).square().sum().backward();
    }
    std::vector<torch::Tensor> result;
    for (const auto& parameter : net->parameters()) result.push_back(parameter.grad().clone());
    return result;
  }

  static std::vector<torch::Tensor> mean(int size) {
    return mean_gradients<TwoLayers>(1, size, [](TwoLayers& alone, int rank) {
      alone(numbers({2, 6}, rank)).square().sum().backward();
    });
  }
};
INSTANTIATE_TEST_SUITE_P(Wires, Hooks, testing::Values(Wire::kGloo, Wire::kLate));

TEST_P(Hooks, built_in_ones_leave_the_mean_within_their_precision) {
  for (const bool views : {false, true}) {
    run(3, [&](const GroupHandle& group) {
      const std::vector<std::pair<CommHook, double>> hooks{
          {hooks::all_reduce(group), 1e-5},
          {hooks::fp16_compress(group), 1e-2},
          {hooks::bf16_compress(group), 1e-1},
          {hooks::fp16_compress_wrapper(hooks::all_reduce(group)), 1e-2},
          {hooks::bf16_compress_wrapper(hooks::all_reduce(group)), 1e-1}};
      for (const auto& [hook, tolerance] : hooks) {
        auto net = make<TwoLayers>(1);
        const auto actual = gradients(net, group, {.gradient_as_bucket_view = views, .comm_hook = hook});
        const auto expected = mean(3);
        for (size_t i = 0; i < actual.size(); ++i)
          EXPECT_LT((actual[i] - expected[i]).norm().item<double>(), tolerance * expected[i].norm().item<double>());
      }
    });
  }
}

TEST_P(Hooks, a_hook_of_the_users_sees_each_bucket_and_replaces_its_reduction) {
  run(2, [](const GroupHandle& group) {
    auto net = make<TwoLayers>(1);
    std::vector<size_t> indices;
    const auto actual = gradients(net, group, {.comm_hook = [&](GradientBucket& bucket) {
                                    indices.push_back(bucket.index());
                                    int64_t elements = 0;
                                    const auto parts = bucket.gradients();
                                    for (size_t i = 0; i < parts.size(); ++i) {
                                      EXPECT_EQ(parts[i].sizes(), bucket.parameters()[i].sizes());
                                      elements += parts[i].numel();
                                    }
                                    EXPECT_EQ(elements, bucket.buffer().numel());
                                    return then(all_reduce_future(bucket.buffer(), group),
                                                [](const at::Tensor& sum) { return sum * 10; });
                                  }});
    const auto expected = mean(2);
    for (size_t i = 0; i < actual.size(); ++i) expect_close(actual[i], expected[i] * 20);
    EXPECT_EQ(indices, (std::vector<size_t>{0, 0, 1, 0, 1})) << "one bucket in the first step, then two";
  });
}

TEST_P(Hooks, a_hook_that_throws_fails_its_ranks_step_with_its_message_and_the_others_do_not_hang) {
  run_ranks(3,
            [](const GroupHandle& group) {
              auto net = make<TwoLayers>(1);
              int calls = 0;
              DistributedDataParallel<TwoLayers> model(net, group);
              model->register_comm_hook(
                  [&, plain = hooks::all_reduce(group)](GradientBucket& bucket) {
                    if (++calls == 2 && group.rank() == 1) throw std::domain_error("out of luck");
                    return plain(bucket);
                  },
                  "mine");
              EXPECT_EQ(model->logging_data().comm_hook, "mine");
              EXPECT_THAT(message_of([&] { model->register_comm_hook(hooks::all_reduce(group)); }),
                          HasSubstr("once; there is already 'mine'"));
              model(numbers({2, 6}, 0)).sum().backward();
              const std::string message = message_of([&] { model(numbers({2, 6}, 0)).sum().backward(); });
              if (group.rank() == 1) {
                EXPECT_THAT(message, HasSubstr("rank 1 of 3: the communication hook failed in bucket 0: out of luck"));
              } else {
                EXPECT_THAT(message, AllOf(HasSubstr(who(group.info())), HasSubstr("all_reduce of a gradient bucket"),
                                           HasSubstr("did not take part in it: rank 1")));
              }
              EXPECT_THAT(message_of([&] { model(numbers({2, 6}, 0)); }), HasSubstr("an earlier backward failed"));
            },
            {.wire = GetParam(), .timeout = std::chrono::seconds(2)});
}

TEST_P(Hooks, power_sgd_of_full_rank_gives_the_mean_and_of_rank_one_saves_elements) {
  run(2, [](const GroupHandle& group) {
    auto net = make<TwoLayers>(1);
    const auto full = make_power_sgd_state(
        group, {.matrix_approximation_rank = 8, .start_iteration = 2, .min_compression_rate = 0.1});
    const auto actual = gradients(net, group, {.comm_hook = hooks::power_sgd(full)}, 5);
    const auto expected = mean(2);
    for (size_t i = 0; i < actual.size(); ++i) EXPECT_LT((actual[i] - expected[i]).norm().item<double>(), 1e-4);

    for (const bool batched : {false, true}) {
      auto other = make<TwoLayers>(1);
      const auto state = make_power_sgd_state(
          group, {.start_iteration = 2, .min_compression_rate = 1, .batch_tensors_with_same_shape = batched});
      const auto approximate = gradients(other, group, {.comm_hook = hooks::power_sgd(state)}, 5);
      const auto all = all_gather(approximate[0].contiguous(), group);
      expect_equal(all[0], all[1]);
      EXPECT_GT(statistics(*state).rate(), 1.5);
    }
    EXPECT_THAT(message_of([&] { make_power_sgd_state(group, {.start_iteration = 1}); }),
                HasSubstr("Expect `start_iteration` > 1"));
  });
}

TEST_P(Hooks, local_sgd_reduces_for_some_steps_and_then_averages_parameters) {
  run(2, [](const GroupHandle& group) {
    auto net = make<TwoLayers>(1);
    DistributedDataParallel<TwoLayers> model(
        net, group,
        {.comm_hook = hooks::post_local_sgd(group, {.start_iteration = 2, .post_local_gradient_allreduce = false})});
    PeriodicModelAverager averager(group, /*period=*/3, /*warmup_steps=*/2);
    torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1));
    for (int step = 0; step < 6; ++step) {
      optimizer.zero_grad();
      model(numbers({2, 6}, group.rank() + 10 * step)).square().mean().backward();
      optimizer.step();
      averager.average_parameters(net->parameters());
      const auto all = all_gather(net->first->weight.detach(), group);
      EXPECT_EQ(torch::equal(all[0], all[1]), step < 2 || step == 2 || step == 5) << "step " << step;
    }
    EXPECT_THAT(message_of([&] { hooks::post_local_sgd(group, {}); }), HasSubstr("needs a subgroup"));
    EXPECT_THAT(message_of([&] { PeriodicModelAverager(group, 0); }), HasSubstr("period >= 1"));
  });
}

TEST_P(Hooks, apex_settings_behave_as_apex) {
  run(2, [](const GroupHandle& group) {
    const auto with = [&](const ApexSettings& settings) {
      auto net = make<TwoLayers>(1);
      DistributedDataParallel<TwoLayers> model(net, group, apex_options(settings, group));
      for (int step = 0; step < 2; ++step) {
        net->zero_grad();
        model(numbers({2, 6}, group.rank())).square().sum().backward();
      }
      return std::make_pair(net->first->weight.grad().clone(), model->logging_data().bucket_bytes.size());
    };
    const torch::Tensor expected = mean(2)[0];
    expect_close(with({}).first, expected);
    expect_close(with({.gradient_average = false}).first, expected * 2);
    expect_close(with({.gradient_predivide_factor = 4}).first, expected);
    expect_close(with({.gradient_average = false, .gradient_predivide_factor = 4}).first, expected / 2);
    expect_close(with({.allreduce_always_fp32 = true}).first, expected);
    EXPECT_EQ(with({.delay_allreduce = true}).second, 1U);
    EXPECT_EQ(with({.message_size = 10}).second, 2U);
    EXPECT_EQ(with({.allreduce_trigger_params = {"second.weight"}}).second, 2U);
    const auto retained = std::make_shared<std::vector<at::Tensor>>();
    expect_close(with({.message_size = 10, .retain_allreduce_buffers = retained}).first, expected);
    ASSERT_EQ(retained->size(), 2U);
    EXPECT_EQ((*retained)[1].numel(), 56);
    EXPECT_THAT(message_of([&] { with({.delay_allreduce = true, .allreduce_trigger_params = {"first.weight"}}); }),
                HasSubstr("only valid without delay_allreduce"));
  });
}

}  // namespace
}  // namespace ddp

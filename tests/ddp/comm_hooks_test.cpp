#include <torch/optim/sgd.h>

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <ddprun/comm/collectives.h>
#include <ddprun/ddp/apex_settings.h>
#include <ddprun/ddp/comm_hooks.h>
#include <ddprun/ddp/distributed_data_parallel.h>

#include "tests/ddp/support.h"
#include "tests/support/catch.h"
#include "tests/support/every_wire.h"
#include "tests/support/rank_checks.h"

namespace ddp {
namespace {

using Catch::Matchers::ContainsSubstring;
using test::expect_close;
using test::expect_equal;
using test::make;
using test::mean_gradients;
using test::message_of;
using test::numbers;
using test::run_ranks;
using test::TwoLayers;
using test::Wire;

class Hooks : protected test::EveryWire {
 protected:
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
TEST_CASE_METHOD(Hooks, "Hooks: built in ones leave the mean within their precision") {
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
          RANK_CHECK((actual[i] - expected[i]).norm().item<double>() < tolerance * expected[i].norm().item<double>());
      }
    });
  }
}

TEST_CASE_METHOD(Hooks, "Hooks: noop leaves each rank its own gradients") {
  run(2, [](const GroupHandle& group) {
    auto net = make<TwoLayers>(1);
    const auto actual = gradients(net, group, {.comm_hook = hooks::noop()});
    auto alone = make<TwoLayers>(1);
    alone(numbers({2, 6}, group.rank())).square().sum().backward();
    const auto parameters = alone->parameters();
    for (size_t i = 0; i < actual.size(); ++i) expect_equal(actual[i], parameters[i].grad());
  });
}

TEST_CASE_METHOD(Hooks, "Hooks: a hook of the users sees each bucket and replaces its reduction") {
  run(2, [](const GroupHandle& group) {
    auto net = make<TwoLayers>(1);
    std::vector<size_t> indices;
    const auto actual = gradients(net, group, {.comm_hook = [&](GradientBucket& bucket) {
                                    indices.push_back(bucket.index());
                                    int64_t elements = 0;
                                    const auto parts = bucket.gradients();
                                    for (size_t i = 0; i < parts.size(); ++i) {
                                      RANK_CHECK(parts[i].sizes() == bucket.parameters()[i].sizes());
                                      elements += parts[i].numel();
                                    }
                                    RANK_CHECK(elements == bucket.buffer().numel());
                                    return then(all_reduce_future(bucket.buffer(), group),
                                                [](const at::Tensor& sum) { return sum * 10; });
                                  }});
    const auto expected = mean(2);
    for (size_t i = 0; i < actual.size(); ++i) expect_close(actual[i], expected[i] * 20);
    RANK_INFO("one bucket in the first step, then two");
    RANK_CHECK(indices == std::vector<size_t>{0, 0, 1, 0, 1});
  });
}

TEST_CASE_METHOD(Hooks, "Hooks: a hook that throws fails its ranks step with its message and the others do not hang") {
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
              RANK_CHECK(model->logging_data().comm_hook == "mine");
              RANK_CHECK_THAT(message_of([&] { model->register_comm_hook(hooks::all_reduce(group)); }),
                              ContainsSubstring("once; there is already 'mine'"));
              model(numbers({2, 6}, 0)).sum().backward();
              const torch::Tensor loss = model(numbers({2, 6}, 0)).sum();
              barrier(group);  // all have the order of the buckets, so that the bucket itself is what fails
              const std::string message = message_of([&] { loss.backward(); });
              if (group.rank() == 1) {
                RANK_CHECK_THAT(
                    message, ContainsSubstring("rank 1 of 3: the communication hook failed in bucket 0: out of luck"));
              } else {
                RANK_CHECK_THAT(message, ContainsSubstring(who(group.info())) &&
                                             ContainsSubstring("all_reduce of a gradient bucket") &&
                                             ContainsSubstring("did not take part in it: rank 1"));
              }
              RANK_CHECK_THAT(message_of([&] {
                                model(numbers({2, 6}, 0));
                              }),
                              ContainsSubstring("an earlier backward failed"));
            },
            {.wire = wire_, .timeout = std::chrono::seconds(2)});
}

TEST_CASE_METHOD(Hooks, "Hooks: one that other ranks lack, or of another name, fails the first backward of all") {
  struct Case {
    std::function<void(DistributedDataParallel<TwoLayers>& model, const GroupHandle& group)> register_on_rank_1;
    std::string of_rank_0;
    std::string of_rank_1;
  };
  const std::vector<Case> cases{
      {[](auto& model, auto& group) {
         if (group.rank() == 1) model->register_comm_hook(hooks::fp16_compress(group));
       },
       "none", "'fp16_compress'"},
      {[](auto& model, auto& group) {
         // As many bytes: nothing on the wire would tell.
         model->register_comm_hook(group.rank() == 1 ? hooks::bf16_compress(group) : hooks::fp16_compress(group));
       },
       "'fp16_compress'", "'bf16_compress'"},
      {[](auto& model, auto& group) {
         if (group.rank() == 0)
           model->register_comm_hook([](auto& bucket) { return completed_future(bucket.buffer()); });
       },
       "'custom'", "none"},
      {[](auto& model, auto& group) { model->register_comm_hook(hooks::noop(), "n" + std::to_string(group.rank())); },
       "'n0'", "'n1'"},
  };
  for (const Case& one : cases) {
    run(2, [&](const GroupHandle& group) {
      auto net = make<TwoLayers>(1);
      DistributedDataParallel<TwoLayers> model(net, group);
      one.register_on_rank_1(model, group);
      const std::string expected = who(group.info()) + ": the ranks' communication hooks differ: rank 0 has " +
                                   one.of_rank_0 + ", rank 1 has " + one.of_rank_1;
      RANK_CHECK_THAT(message_of([&] { model(numbers({2, 6}, 0)).sum().backward(); }), ContainsSubstring(expected));
      RANK_CHECK_THAT(model->logging_data().error, ContainsSubstring(expected));
      RANK_CHECK_THAT(message_of([&] { model(numbers({2, 6}, 0)); }), ContainsSubstring("an earlier backward failed"));
    });
  }
}

TEST_CASE_METHOD(Hooks, "Hooks: ranks that have joined before their first step compare theirs as well") {
  run(3, [](const GroupHandle& group) {
    auto net = make<TwoLayers>(1);
    DistributedDataParallel<TwoLayers> model(net, group);
    model->register_comm_hook(hooks::all_reduce(group));
    model->join([&] {
      for (int step = 0; step < group.rank(); ++step) model(numbers({2, 6}, step)).sum().backward();
    });
    RANK_CHECK(model->logging_data().error.empty());
  });
}

TEST_CASE_METHOD(Hooks, "Hooks: one that all ranks register after some steps takes effect") {
  run(2, [](const GroupHandle& group) {
    auto net = make<TwoLayers>(1);
    DistributedDataParallel<TwoLayers> model(net, group);
    for (int step = 0; step < 2; ++step) model(numbers({2, 6}, step)).sum().backward();
    model->register_comm_hook(named_hook(
        "zeros", [](GradientBucket& bucket) { return completed_future(torch::zeros_like(bucket.buffer())); }));
    RANK_CHECK(model->logging_data().comm_hook == "zeros");
    net->zero_grad();
    model(numbers({2, 6}, 2)).sum().backward();
    for (const torch::Tensor& parameter : net->parameters()) RANK_CHECK_FALSE(parameter.grad().any().item<bool>());
  });
}

TEST_CASE_METHOD(Hooks, "Hooks: those of the library have their names in the logging data") {
  run(2, [](const GroupHandle& group) {
    const std::vector<std::pair<CommHook, std::string>> named{
        {hooks::all_reduce(group), "all_reduce"},
        {hooks::fp16_compress(group), "fp16_compress"},
        {hooks::bf16_compress(group), "bf16_compress"},
        {hooks::fp16_compress_wrapper(hooks::all_reduce(group)), "fp16_compress_wrapper(all_reduce)"},
        {hooks::bf16_compress_wrapper(hooks::noop()), "bf16_compress_wrapper(noop)"},
        {hooks::power_sgd(make_power_sgd_state(group, {})), "power_sgd"},
        {hooks::post_local_sgd(group, {.post_local_gradient_allreduce = false}), "post_local_sgd"}};
    for (const auto& [hook, name] : named) {
      DistributedDataParallel<TwoLayers> model(make<TwoLayers>(1), group, {.comm_hook = hook});
      RANK_CHECK(model->logging_data().comm_hook == name);
    }
  });
}

TEST_CASE_METHOD(Hooks, "Hooks: power SGD of full rank gives the mean and of rank one saves elements") {
  run(2, [](const GroupHandle& group) {
    auto net = make<TwoLayers>(1);
    const auto full = make_power_sgd_state(
        group, {.matrix_approximation_rank = 8, .start_iteration = 2, .min_compression_rate = 0.1});
    const auto actual = gradients(net, group, {.comm_hook = hooks::power_sgd(full)}, 5);
    const auto expected = mean(2);
    for (size_t i = 0; i < actual.size(); ++i) RANK_CHECK((actual[i] - expected[i]).norm().item<double>() < 1e-4);

    for (const bool batched : {false, true}) {
      auto other = make<TwoLayers>(1);
      const auto state = make_power_sgd_state(
          group, {.start_iteration = 2, .min_compression_rate = 1, .batch_tensors_with_same_shape = batched});
      const auto approximate = gradients(other, group, {.comm_hook = hooks::power_sgd(state)}, 5);
      const auto all = all_gather(approximate[0].contiguous(), group);
      expect_equal(all[0], all[1]);
      RANK_CHECK(statistics(*state).rate() > 1.5);
    }
    RANK_CHECK_THAT(message_of([&] { make_power_sgd_state(group, {.start_iteration = 1}); }),
                    ContainsSubstring("Expect `start_iteration` > 1"));
  });
}

// Python's fails with an error of its own.
TEST_CASE_METHOD(Hooks, "Hooks: power SGD passes over parameters without elements") {
  run(2, [](const GroupHandle& group) {
    auto net = make<TwoLayers>(1);
    const auto empty = net->register_parameter("empty", test::here(torch::zeros({0, 3})));
    DistributedDataParallel<TwoLayers> model(
        net, group, {.comm_hook = hooks::power_sgd(make_power_sgd_state(group, {.start_iteration = 2}))});
    for (int step = 0; step < 4; ++step) {
      net->zero_grad();
      (model(numbers({2, 6}, group.rank())).square().sum() + empty.sum()).backward();
      const auto all = all_gather(net->first->weight.grad().contiguous(), group);
      expect_equal(all[0], all[1]);
      RANK_CHECK(all[0].ne(0).any().item<bool>());
    }
  });
}

TEST_CASE_METHOD(Hooks, "Hooks: local SGD reduces for some steps and then averages parameters") {
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
      RANK_INFO("step " << step);
      RANK_CHECK(torch::equal(all[0], all[1]) == (step < 2 || step == 2 || step == 5));
    }
    RANK_CHECK_THAT(message_of([&] { hooks::post_local_sgd(group, {}); }), ContainsSubstring("needs a subgroup"));
    RANK_CHECK_THAT(message_of([&] { PeriodicModelAverager(group, 0); }), ContainsSubstring("period >= 1"));
  });
}

TEST_CASE_METHOD(Hooks, "Hooks: apex settings behave as apex") {
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
    RANK_CHECK(with({.delay_allreduce = true}).second == 1U);
    RANK_CHECK(with({.message_size = 10}).second == 2U);
    RANK_CHECK(with({.allreduce_trigger_params = {"second.weight"}}).second == 2U);
    const auto retained = std::make_shared<std::vector<at::Tensor>>();
    expect_close(with({.message_size = 10, .retain_allreduce_buffers = retained}).first, expected);
    RANK_REQUIRE(retained->size() == 2U);
    RANK_CHECK((*retained)[1].numel() == 56);
    RANK_CHECK_THAT(message_of([&] { with({.delay_allreduce = true, .allreduce_trigger_params = {"first.weight"}}); }),
                    ContainsSubstring("only valid without delay_allreduce"));
  });
}

}  // namespace
}  // namespace ddp

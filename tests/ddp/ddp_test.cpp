#include <torch/torch.h>

#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include <ddprun/comm/collectives.h>
#include <ddprun/comm/manual_seed.h>
#include <ddprun/ddp/distributed_data_parallel.h>

#include "tests/ddp/support.h"
#include "tests/support/catch.h"
#include "tests/support/placement.h"
#include "tests/support/rank_checks.h"
#include "tests/support/ranks.h"
#include "tests/support/tensors.h"

namespace ddp {
namespace {

using Catch::Matchers::ContainsSubstring;
using test::expect_close;
using test::expect_equal;
using test::here;
using test::make;
using test::message_of;
using test::numbers;
using test::run_ranks;
using test::TwoLayers;
using test::Wire;

struct NetImpl : torch::nn::Module {
  NetImpl() {
    register_module("first", first);
    register_module("norm", norm);
    register_module("second", second);
  }
  torch::Tensor forward(const torch::Tensor& x) { return second(torch::relu(norm(first(x)))); }

  torch::nn::Linear first{6, 8};
  torch::nn::BatchNorm1d norm{8};
  torch::nn::Linear second{8, 3};
};
TORCH_MODULE(Net);

class Reduction {
 protected:
  Wire wire() const { return wire_; }
  DdpOptions options() const {
    // Small buckets, so that there are several and the order is rebuilt after the first backward.
    return {.bucket_cap_bytes = 200, .first_bucket_bytes = 100, .gradient_as_bucket_view = views_};
  }

  const Wire wire_ = GENERATE(from_range(test::wires({Wire::kGloo, Wire::kShm, Wire::kLate})));
  const bool views_ = GENERATE(false, true);
  FIXTURE_INFO("wire: " << wire_ << (views_ ? ", views of buckets" : ""));
};

TEST_CASE_METHOD(Reduction, "Reduction: leaves the mean of all ranks' gradients") {
  for (const int size : {1, 2, 3}) {
    run_ranks(size,
              [&](const GroupHandle& group) {
                auto net = make<TwoLayers>(1);
                DistributedDataParallel<TwoLayers> model(net, group, options());
                for (int step = 0; step < 3; ++step) {
                  model->zero_grad();
                  model(numbers({4, 6}, group.rank() + 10 * step)).square().sum().backward();

                  std::vector<torch::Tensor> expected;
                  for (int rank = 0; rank < size; ++rank) {
                    auto alone = make<TwoLayers>(1);
                    alone(numbers({4, 6}, rank + 10 * step)).square().sum().backward();
                    const auto parameters = alone->parameters();
                    for (size_t i = 0; i < parameters.size(); ++i) {
                      if (rank == 0) {
                        expected.push_back(parameters[i].grad() / size);
                      } else {
                        expected[i] += parameters[i].grad() / size;
                      }
                    }
                  }
                  const auto parameters = net->parameters();
                  for (size_t i = 0; i < parameters.size(); ++i) expect_close(parameters[i].grad(), expected[i]);
                }
              },
              {.wire = wire()});
  }
}

TEST_CASE_METHOD(Reduction, "Reduction: training follows one process with the whole batch") {
  auto alone = make<TwoLayers>(5);
  torch::optim::SGD alone_optimizer(alone->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  for (int step = 0; step < 10; ++step) {
    alone_optimizer.zero_grad();
    alone(numbers({8, 6}, step)).square().mean().backward();
    alone_optimizer.step();
  }
  run_ranks(2,
            [&](const GroupHandle& group) {
              auto net = make<TwoLayers>(5 + group.rank());  // rank 1 starts elsewhere: it has to take rank 0's weights
              DistributedDataParallel<TwoLayers> model(net, group, options());
              torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
              for (int step = 0; step < 10; ++step) {
                optimizer.zero_grad();
                model(numbers({8, 6}, step).chunk(2)[group.rank()]).square().mean().backward();
                optimizer.step();
              }
              for (size_t i = 0; i < net->parameters().size(); ++i)
                expect_close(net->parameters()[i], alone->parameters()[i]);
            },
            {.wire = wire()});
}

TEST_CASE_METHOD(Reduction, "Reduction: both kinds of zero_grad work and give the same bits") {
  std::vector<torch::Tensor> results[2];
  for (const bool set_to_none : {false, true}) {
    run_ranks(2,
              [&](const GroupHandle& group) {
                auto net = make<TwoLayers>(2);
                DistributedDataParallel<TwoLayers> model(net, group, options());
                torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.01).momentum(0.9));
                for (int step = 0; step < 6; ++step) {
                  optimizer.zero_grad(set_to_none);
                  model(numbers({4, 6}, group.rank() + 10 * step)).square().mean().backward();
                  for (const auto& parameter : net->parameters()) RANK_CHECK_FALSE(parameter.grad().is_view());
                  optimizer.step();
                }
                if (group.rank() == 0) {
                  for (const auto& parameter : net->parameters())
                    results[set_to_none].push_back(parameter.detach().clone());
                }
              },
              {.wire = wire()});
  }
  for (size_t i = 0; i < results[0].size(); ++i) expect_equal(results[0][i], results[1][i]);
}

TEST_CASE_METHOD(Reduction, "Reduction: no_sync accumulates locally and the next backward reduces the sum") {
  run_ranks(2,
            [&](const GroupHandle& group) {
              auto net = make<TwoLayers>(3);
              DistributedDataParallel<TwoLayers> model(net, group, options());
              for (int step = 0; step < 3; ++step) {
                model->zero_grad();
                torch::Tensor local;
                {
                  const auto guard = model->no_sync();
                  for (int part = 0; part < 2; ++part)
                    model(numbers({2, 6}, group.rank() + 10 * part)).sum().backward();
                  local = net->first->weight.grad().clone();
                }
                auto alone = make<TwoLayers>(3);
                for (int part = 0; part < 2; ++part) alone(numbers({2, 6}, group.rank() + 10 * part)).sum().backward();
                expect_equal(local, alone->first->weight.grad());

                model(numbers({2, 6}, group.rank() + 20)).sum().backward();
                alone(numbers({2, 6}, group.rank() + 20)).sum().backward();
                auto expected = alone->first->weight.grad() / 2;
                all_reduce(expected, group);
                expect_close(net->first->weight.grad(), expected);
              }
            },
            {.wire = wire()});
}

TEST_CASE("DistributedDataParallel: takes parameters and buffers from rank 0") {
  run_ranks(3, [](const GroupHandle& group) {
    auto net = make<Net>(group.rank());
    net->norm->running_mean.fill_(group.rank() + 1);
    const DistributedDataParallel<Net> model(net, group);
    const auto expected = make<Net>(0);
    for (size_t i = 0; i < net->parameters().size(); ++i) expect_equal(net->parameters()[i], expected->parameters()[i]);
    expect_equal(net->norm->running_mean, here(torch::ones({8})));
  });
}

TEST_CASE("DistributedDataParallel: broadcasts buffers before the forward after a synchronised backward") {
  run_ranks(2, [](const GroupHandle& group) {
    auto net = make<Net>(0);
    DistributedDataParallel<Net> model(net, group);
    for (int step = 0; step < 3; ++step) model(numbers({4, 6}, group.rank() + 10 * step)).sum().backward();
    const auto own = net->norm->running_mean.clone();
    const auto all = all_gather(own, group);
    RANK_INFO("each rank's last forward has its own batch");
    RANK_CHECK_FALSE(torch::equal(all[0], all[1]));

    net->eval();
    const torch::NoGradGuard no_grad;
    model(numbers({4, 6}, 1));
    expect_equal(net->norm->running_mean, all[0]);
    expect_equal(net->norm->num_batches_tracked, here(torch::tensor(3, torch::kLong)));

    net->norm->running_mean.fill_(group.rank());
    model(numbers({4, 6}, 1));  // no synchronised forward in between
    expect_equal(net->norm->running_mean, here(torch::full({8}, static_cast<float>(group.rank()))));
  });
}

TEST_CASE("DistributedDataParallel: broadcast buffers can be turned off") {
  run_ranks(2, [](const GroupHandle& group) {
    auto net = make<Net>(0);
    DistributedDataParallel<Net> model(net, group, {.broadcast_buffers = false});
    model(numbers({4, 6}, group.rank())).sum().backward();
    net->eval();
    const auto own = net->norm->running_mean.clone();
    const torch::NoGradGuard no_grad;
    model(numbers({4, 6}, 1));
    expect_equal(net->norm->running_mean, own);
  });
}

TEST_CASE("DistributedDataParallel: with forward_sync_buffers = false buffers are equal at the start alone") {
  run_ranks(2, [](const GroupHandle& group) {
    for (const bool broadcast : {false, true}) {
      auto net = make<Net>(0);
      net->norm->running_mean.fill_(group.rank() + 5);
      DistributedDataParallel<Net> model(net, group, {.broadcast_buffers = broadcast, .forward_sync_buffers = false});
      expect_equal(net->norm->running_mean, here(torch::full({8}, 5.0F)));
      model(numbers({4, 6}, group.rank())).sum().backward();
      net->eval();
      const auto own = net->norm->running_mean.clone();
      const torch::NoGradGuard no_grad;
      model(numbers({4, 6}, 1));
      expect_equal(net->norm->running_mean, own);
      RANK_CHECK_FALSE(model->logging_data().broadcast_buffers);
    }
  });
}

TEST_CASE("DistributedDataParallel: gradients stay in the bucket when they are zeroed in place") {
  run_ranks(2, [](const GroupHandle& group) {
    auto net = make<TwoLayers>(0);
    DistributedDataParallel<TwoLayers> model(net, group);
    std::vector<const void*> places;
    for (int step = 0; step < 5; ++step) {
      net->zero_grad(/*set_to_none=*/false);
      model(numbers({4, 6}, step)).sum().backward();
      std::vector<const void*> now;
      for (const auto& parameter : net->parameters()) now.push_back(parameter.grad().data_ptr());
      if (step > 2) {
        RANK_CHECK(now == places);  // the buckets are rebuilt once, after the first step
      }
      places = now;
    }
    RANK_CHECK(net->first->weight.grad().storage().is_alias_of(net->second->bias.grad().storage()));
  });
}

struct SharedLayerImpl : torch::nn::Module {
  SharedLayerImpl() {
    register_module("in", in);
    register_module("out", in);  // tied
    register_module("frozen", frozen);
    for (auto& parameter : frozen->parameters()) parameter.set_requires_grad(false);
  }
  torch::Tensor forward(const torch::Tensor& x) { return in(frozen(in(x))); }
  torch::nn::Linear in{6, 6};
  torch::nn::Linear frozen{6, 6};
};
TORCH_MODULE(SharedLayer);

TEST_CASE("DistributedDataParallel: counts tied parameters once and leaves frozen ones alone") {
  run_ranks(2, [](const GroupHandle& group) {
    auto net = make<SharedLayer>(4);
    DistributedDataParallel<SharedLayer> model(net, group);
    for (int step = 0; step < 3; ++step) {
      net->zero_grad();
      model(numbers({2, 6}, group.rank())).sum().backward();
    }
    auto alone = make<SharedLayer>(4);
    alone(numbers({2, 6}, group.rank())).sum().backward();
    auto expected = alone->in->weight.grad() / 2;
    all_reduce(expected, group);
    expect_close(net->in->weight.grad(), expected);
    RANK_CHECK_FALSE(net->frozen->weight.grad().defined());
  });
}

TEST_CASE("DistributedDataParallel: two models train side by side") {
  run_ranks(2, [](const GroupHandle& group) {
    auto one = make<TwoLayers>(1);
    auto two = make<TwoLayers>(2);
    DistributedDataParallel<TwoLayers> first(one, group);
    DistributedDataParallel<TwoLayers> second(two, group);
    for (int step = 0; step < 4; ++step) {
      one->zero_grad();
      two->zero_grad();
      const auto x = numbers({4, 6}, group.rank());
      (first(x).sum() + second(x).square().sum()).backward();
    }
    for (const auto& parameter : {one->first->weight, two->first->weight}) {
      const auto all = all_gather(parameter.grad().contiguous(), group);
      expect_equal(all[0], all[1]);
      RANK_CHECK_FALSE(parameter.grad().is_view());
    }
  });
}

struct PairNet : torch::nn::Module {
  PairNet() { register_module("linear", linear); }
  std::tuple<torch::Tensor, int> forward(const torch::Tensor& x, int tag = 7) { return {linear(x), tag}; }
  torch::nn::Linear linear{6, 2};
};

struct VoidNet : torch::nn::Module {
  VoidNet() { register_module("linear", linear); }
  void forward(torch::Tensor& loss) { loss = linear(loss).sum(); }
  torch::nn::Linear linear{6, 2};
};

TEST_CASE("DistributedDataParallel: wraps shared pointers and forwards of any type") {
  run_ranks(2, [](const GroupHandle& group) {
    auto pair = test::placed(std::make_shared<PairNet>());
    DistributedDataParallel<std::shared_ptr<PairNet>> pair_model(pair, group);
    auto [output, tag] = pair_model->forward(numbers({2, 6}, group.rank()));
    RANK_CHECK(tag == 7);
    RANK_CHECK(std::get<1>(pair_model->forward(numbers({2, 6}, 0), 9)) == 9);
    RANK_CHECK(pair_model->named_parameters().keys() ==
               std::vector<std::string>{"module.linear.weight", "module.linear.bias"});
    RANK_CHECK(pair_model->module() == pair);

    DistributedDataParallel<std::shared_ptr<VoidNet>> void_model(test::placed(std::make_shared<VoidNet>()), group);
    auto loss = numbers({2, 6}, group.rank());
    void_model->forward(loss);
    loss.backward();
    const auto all = all_gather(void_model->module()->linear->weight.grad(), group);
    expect_equal(all[0], all[1]);
  });
}

TEST_CASE("DistributedDataParallel: manual seed gives equal weights and then a stream per rank") {
  // In sequence: the default generator belongs to the process, and here both ranks are in one.
  torch::Tensor weights[2];
  torch::Tensor noise[2];
  std::mutex turn;
  run_ranks(2, [&](const GroupHandle& group) {
    const std::lock_guard lock(turn);
    manual_seed(5, group);
    const TwoLayers net;
    take_rank_stream(group);
    weights[group.rank()] = net->first->weight.detach().clone();
    noise[group.rank()] = torch::rand({4});
  });
  expect_equal(weights[0], weights[1]);
  CHECK_FALSE(torch::equal(noise[0], noise[1]));
}

TEST_CASE("DistributedDataParallel: a rank whose model differs from rank 0s says how") {
  run_ranks(2, [&](const GroupHandle& group) {
    const std::string message = message_of([&] {
      torch::nn::Linear layer(6, group.rank() == 0 ? 2 : 3);
      const DistributedDataParallel<torch::nn::Linear> model(layer, group);
    });
    RANK_CHECK_THAT(message, ContainsSubstring("rank " + std::to_string(group.rank()) + " of 2: "));
    RANK_CHECK_THAT(message, ContainsSubstring("rank 1 has parameter 'weight' Float [3, 6]"));
  });
}

TEST_CASE("DistributedDataParallel: refuses what it cannot wrap") {
  run_ranks(1, [](const GroupHandle& group) {
    auto frozen = make<TwoLayers>(0);
    for (auto& parameter : frozen->parameters()) parameter.set_requires_grad(false);
    RANK_CHECK_THAT(
        message_of([&] { DistributedDataParallel<TwoLayers>(frozen, group); }),
        ContainsSubstring("DistributedDataParallel is not needed when a module doesn't have any parameter"));
    RANK_CHECK_THAT(message_of([&] { DistributedDataParallel<TwoLayers>(TwoLayers(nullptr), group); }),
                    ContainsSubstring("empty module holder"));
    RANK_CHECK_THAT(
        message_of([&] { DistributedDataParallel<TwoLayers>(make<TwoLayers>(0), group, {.bucket_cap_bytes = 0}); }),
        ContainsSubstring("bucket_cap_bytes=0"));
  });
}

TEST_CASE("DistributedDataParallel: refuses to be moved after wrapping") {
  run_ranks(1, [](const GroupHandle& group) {
    auto net = make<TwoLayers>(0);
    DistributedDataParallel<TwoLayers> model(net, group);
    RANK_CHECK_THAT(message_of([&] { model->to(torch::kDouble, false); }), ContainsSubstring("before wrapping"));
    net->to(torch::kDouble);  // cannot be refused, so the next forward says it
    RANK_CHECK_THAT(message_of([&] {
                      model(numbers({1, 6}, 0).to(torch::kDouble));
                    }),
                    ContainsSubstring("was cast from Float to Double"));
  });
}

struct OneUnusedImpl : torch::nn::Module {
  OneUnusedImpl() {
    register_module("used", used);
    register_module("unused", unused);
  }
  torch::Tensor forward(const torch::Tensor& x) { return used(x); }
  torch::nn::Linear used{6, 2};
  torch::nn::Linear unused{6, 2};
};
TORCH_MODULE(OneUnused);

TEST_CASE("DistributedDataParallel: names parameters that got no gradient") {
  run_ranks(2, [](const GroupHandle& group) {
    DistributedDataParallel<OneUnused> model(make<OneUnused>(0), group);
    // Python says so at the next forward, when the optimizer has stepped on gradients that differ between the ranks.
    const std::string message = message_of([&] { model(numbers({1, 6}, 0)).sum().backward(); });
    RANK_CHECK_THAT(message, ContainsSubstring("Expected to have finished reduction in the prior iteration"));
    RANK_CHECK_THAT(message_of([&] { model(numbers({1, 6}, 0)); }), ContainsSubstring("Expected to have finished"));
    RANK_CHECK_THAT(message,
                    ContainsSubstring("did not receive grad for rank " + std::to_string(group.rank()) + ": 2 3"));
    RANK_CHECK_THAT(message, ContainsSubstring("by setting `DdpOptions::find_unused_parameters = true`"));
    RANK_CHECK_THAT(message, !ContainsSubstring("=True") && !ContainsSubstring("torch.nn"));
  });
}

TEST_CASE("DistributedDataParallel: forward on a closed group says so") {
  run_ranks(1, [](const GroupHandle& group) {
    DistributedDataParallel<TwoLayers> model(make<TwoLayers>(0), group);
    auto owner = init_process_group({.rank_info = RankInfo{}});
    DistributedDataParallel<TwoLayers> other(make<TwoLayers>(0), owner);
    owner.close();
    RANK_CHECK_THAT(message_of([&] { other(numbers({1, 6}, 0)); }), ContainsSubstring("closed"));
    RANK_CHECK(message_of([&] { model(numbers({1, 6}, 0)); }) == "");
  });
}

TEST_CASE("DistributedDataParallel: a throwing forward leaves the wrapper usable") {
  run_ranks(2, [](const GroupHandle& group) {
    auto net = make<TwoLayers>(0);
    DistributedDataParallel<TwoLayers> model(net, group);
    RANK_CHECK_THROWS_AS(model(numbers({1, 5}, 0)), c10::Error);
    for (int step = 0; step < 2; ++step) model(numbers({1, 6}, group.rank())).sum().backward();
    const auto all = all_gather(net->first->weight.grad().contiguous(), group);
    expect_equal(all[0], all[1]);
  });
}

}  // namespace
}  // namespace ddp

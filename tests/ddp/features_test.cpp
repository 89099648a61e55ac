// Everything that DistributedDataParallel offers beside the mean of all gradients.
#include <torch/nn/modules/embedding.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/sgd.h>

#include <functional>
#include <stdexcept>
#include <vector>

#include <ddprun/comm/collectives.h>
#include <ddprun/ddp/distributed_data_parallel.h>
#include <ddprun/detail/comm/gradient_hook.h>

#include "tests/ddp/again.h"
#include "tests/ddp/support.h"
#include "tests/support/catch.h"
#include "tests/support/every_wire.h"
#include "tests/support/placement.h"
#include "tests/support/rank_checks.h"

namespace ddp {
namespace {

using Catch::Matchers::ContainsSubstring;
using test::Again;
using test::expect_close;
using test::expect_equal;
using test::here;
using test::make;
using test::mean_gradients;
using test::message_of;
using test::numbers;
using test::placed;
using test::run_ranks;
using test::TwoLayers;

class Features : protected test::EveryWire {};

struct ReentrantImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) {
    torch::Tensor y = torch::tanh(in(x));
    y = Again::apply(y, twice.get());
    y = Again::apply(torch::tanh(y), twice.get());
    return out(y);
  }
  torch::nn::Linear in = register_module("in", torch::nn::Linear(6, 4));
  torch::nn::Linear twice = register_module("twice", torch::nn::Linear(4, 4));
  torch::nn::Linear never = register_module("never", torch::nn::Linear(4, 4));
  torch::nn::Linear out = register_module("out", torch::nn::Linear(4, 2));
};
TORCH_MODULE(Reentrant);

TEST_CASE_METHOD(Features, "Features: static graphs may have reentrant segments unused layers and layers used twice") {
  for (const bool views : {false, true}) {
    run(2, [&](const GroupHandle& group) {
      auto net = make<Reentrant>(4);
      DistributedDataParallel<Reentrant> model(
          net, group, {.bucket_cap_bytes = 100, .static_graph = true, .gradient_as_bucket_view = views});
      torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.01));
      for (int step = 0; step < 4; ++step) {
        optimizer.zero_grad();
        model(numbers({3, 6}, group.rank() + 10 * step)).square().sum().backward();
        const auto expected = mean_gradients<Reentrant>(4, 2, [&](Reentrant& alone, int rank) {
          alone(numbers({3, 6}, rank + 10 * step)).square().sum().backward();
        });
        const auto parameters = net->parameters();
        for (size_t i = 0; i < parameters.size(); ++i) {
          RANK_INFO("step " << step << " parameter " << i);
          RANK_REQUIRE(parameters[i].grad().defined() == expected[i].defined());
          if (expected[i].defined()) expect_close(parameters[i].grad(), expected[i]);
        }
      }
      RANK_CHECK(model->logging_data().static_graph);
    });
  }
}

// Whose last gradients come in a backward within the backward.
struct ReentrantFirstImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) { return out(Again::apply(x.detach().requires_grad_(), inner.get())); }
  torch::nn::Linear inner = register_module("inner", torch::nn::Linear(6, 4));
  torch::nn::Linear out = register_module("out", torch::nn::Linear(4, 2));
};
TORCH_MODULE(ReentrantFirst);

TEST_CASE_METHOD(Features, "Features: the last bucket may be that of a reentrant segment") {
  for (const bool own : {false, true}) {
    if (own && test::is_on_devices()) continue;  // our own engine is for the CPU
    run(2, [&](const GroupHandle& group) {
      auto net = make<ReentrantFirst>(4);
      DistributedDataParallel<ReentrantFirst> model(
          net, group, {.bucket_cap_bytes = 8, .first_bucket_bytes = 8, .own_engine = own});
      for (int step = 0; step < 3; ++step) {
        net->zero_grad();
        model(numbers({3, 6}, group.rank() + 10 * step)).square().sum().backward();
        const auto expected = mean_gradients<ReentrantFirst>(4, 2, [&](ReentrantFirst& alone, int rank) {
          alone(numbers({3, 6}, rank + 10 * step)).square().sum().backward();
        });
        const auto parameters = net->parameters();
        for (size_t i = 0; i < parameters.size(); ++i) expect_close(parameters[i].grad(), expected[i]);
      }
    });
  }
}

TEST_CASE_METHOD(Features, "Features: a model used twice in one loss reduces once") {
  run(2, [&](const GroupHandle& group) {
    auto net = make<TwoLayers>(5);
    DistributedDataParallel<TwoLayers> model(net, group, {.static_graph = true});
    for (int step = 0; step < 3; ++step) {
      net->zero_grad();
      const auto once = model(numbers({2, 6}, group.rank()));
      (once.sum() + model(numbers({2, 6}, group.rank() + 5)).square().sum()).backward();
      const auto expected = mean_gradients<TwoLayers>(5, 2, [&](TwoLayers& alone, int rank) {
        (alone(numbers({2, 6}, rank)).sum() + alone(numbers({2, 6}, rank + 5)).square().sum()).backward();
      });
      for (size_t i = 0; i < expected.size(); ++i) expect_close(net->parameters()[i].grad(), expected[i]);
    }
  });
}

TEST_CASE_METHOD(Features, "Features: ignored parameters and buffers are left alone") {
  run(2, [&](const GroupHandle& group) {
    auto net = make<TwoLayers>(6 + 100 * group.rank());
    DistributedDataParallel<TwoLayers> model(net, group, {.ignored = {"second.weight", "second.bias"}});
    const auto own = make<TwoLayers>(6 + 100 * group.rank());
    expect_equal(net->first->weight, make<TwoLayers>(6)->first->weight);
    expect_equal(net->second->weight, own->second->weight);
    const auto x = numbers({2, 6}, group.rank());
    model(x).sum().backward();
    expect_equal(net->second->bias.grad(), here(torch::full({3}, 2.F)));
    const auto all = all_gather(net->first->bias.grad(), group);
    expect_equal(all[0], all[1]);
  });
}

TEST_CASE_METHOD(Features, "Features: delayed parameters are reduced in one piece when the trigger comes") {
  run(2, [&](const GroupHandle& group) {
    auto net = make<TwoLayers>(7 + 100 * group.rank());
    DistributedDataParallel<TwoLayers> model(
        net, group, {.delayed = {.names = {"second.weight", "second.bias"}, .trigger = "first.weight"}});
    torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.0));
    for (const bool set_to_none : {true, false, true}) {
      optimizer.zero_grad(set_to_none);
      model(numbers({2, 6}, group.rank())).square().sum().backward();
      const auto expected = mean_gradients<TwoLayers>(7, 2, [&](TwoLayers& alone, int rank) {
        alone(numbers({2, 6}, rank)).square().sum().backward();
      });
      for (size_t i = 0; i < expected.size(); ++i) expect_close(net->parameters()[i].grad(), expected[i]);
    }
  });
}

// Of which a forward may leave the first layer out, or the last one.
struct ThreeLayersImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x, bool has_first, bool has_last) {
    const torch::Tensor y = second(has_first ? first(x) : x);
    return has_last ? last(y) : y;
  }
  torch::nn::Linear first = register_module("first", torch::nn::Linear(6, 6));
  torch::nn::Linear second = register_module("second", torch::nn::Linear(6, 6));
  torch::nn::Linear last = register_module("last", torch::nn::Linear(6, 6));
};
TORCH_MODULE(ThreeLayers);

// The gradients of `net`'s parameters after each of some steps; rank r of step s uses the first layer where
// first(r, s), the last one where last(r, s).
using Uses = std::function<bool(int rank, int step)>;
std::vector<torch::Tensor> delayed_gradients(const GroupHandle& group, const DdpOptions& options, const Uses& first,
                                             const Uses& last, const std::function<void(ThreeLayersImpl&)>& change) {
  auto net = make<ThreeLayers>(3);
  DistributedDataParallel<ThreeLayers> model(net, group, options);
  std::vector<torch::Tensor> all;
  for (int step = 0; step < 3; ++step) {
    if (step == 1) change(*net);
    net->zero_grad();
    model(numbers({2, 6}, group.rank() + 10 * step), first(group.rank(), step), last(group.rank(), step))
        .square()
        .sum()
        .backward();
    for (const auto& parameter : net->parameters()) {
      all.push_back(parameter.grad().defined() ? parameter.grad().clone() : torch::Tensor());
    }
  }
  return all;
}

// Those with delayed parameters are those without.
void expect_delayed_as_others(const GroupHandle& group, const DdpOptions& options, const Uses& first, const Uses& last,
                              const std::function<void(ThreeLayersImpl&)>& change) {
  DdpOptions delayed = options;
  delayed.delayed = {.names = {"last.weight", "last.bias", "second.bias"}, .trigger = "first.weight"};
  const auto expected = delayed_gradients(group, options, first, last, change);
  const auto found = delayed_gradients(group, delayed, first, last, change);
  for (size_t i = 0; i < expected.size(); ++i) {
    RANK_INFO("gradient " << i);
    RANK_REQUIRE(found[i].defined() == expected[i].defined());
    if (expected[i].defined()) expect_close(found[i], expected[i]);
  }
}

TEST_CASE_METHOD(Features, "Features: delayed parameters are averaged where their trigger gets no gradient") {
  const Uses always = [](int, int) { return true; };
  const auto nothing = [](ThreeLayersImpl&) {};
  run(2, [&](const GroupHandle& group) {
    expect_delayed_as_others(group, {}, always, always,
                             [](ThreeLayersImpl& net) { net.first->weight.set_requires_grad(false); });
    const DdpOptions finds{.find_unused_parameters = true};
    expect_delayed_as_others(
        group, finds, [](int, int step) { return step != 1; }, always, nothing);
    expect_delayed_as_others(
        group, finds, [](int rank, int step) { return rank != step; }, always, nothing);
  });
}

TEST_CASE_METHOD(Features, "Features: a delayed parameter that no rank uses keeps its gradient as it was") {
  const Uses always = [](int, int) { return true; };
  const auto nothing = [](ThreeLayersImpl&) {};
  run(2, [&](const GroupHandle& group) {
    expect_delayed_as_others(group, {}, always, always,
                             [](ThreeLayersImpl& net) { net.last->weight.set_requires_grad(false); });
    const DdpOptions finds{.find_unused_parameters = true};
    expect_delayed_as_others(
        group, finds, always, [](int, int step) { return step != 1; }, nothing);
    expect_delayed_as_others(
        group, finds, always, [](int rank, int step) { return rank != step; }, nothing);
    expect_delayed_as_others(
        group, finds, [](int rank, int) { return rank == 0; },
        [](int rank, int step) { return rank == 1 && step == 2; }, nothing);
  });
}

TEST_CASE_METHOD(Features, "Features: a delayed parameter whose gradient comes after the trigger's is named") {
  if (test::is_on_devices()) return;  // they see that it comes into what is on its way, before it is refused
  run(2, [&](const GroupHandle& group) {
    DistributedDataParallel<TwoLayers> model(make<TwoLayers>(7), group,
                                             {.delayed = {.names = {"first.weight"}, .trigger = "second.weight"}});
    const auto backward = [&] { model(numbers({2, 6}, group.rank())).square().sum().backward(); };
    {
      const auto local = model->no_sync();
      backward();
    }
    RANK_CHECK_THAT(message_of(backward), ContainsSubstring("delayed parameter 'first.weight' gets its gradient after "
                                                            "the trigger 'second.weight'"));
  });
}

TEST_CASE_METHOD(Features, "Features: a backward that failed leaves nothing to refuse in later ones") {
  if (test::is_on_devices()) return;  // of what is left in flight nothing is known there
  run(2, [&](const GroupHandle& group) {
    auto net = make<TwoLayers>(7);
    DistributedDataParallel<TwoLayers> model(
        net, group,
        {.ignored = {"first.bias"}, .delayed = {.names = {"second.weight", "second.bias"}, .trigger = "first.weight"}});
    const auto backward = [&] { model(numbers({2, 6}, group.rank())).square().sum().backward(); };
    const auto expected = mean_gradients<TwoLayers>(7, 2, [&](TwoLayers& alone, int rank) {
      alone(numbers({2, 6}, rank)).square().sum().backward();
    });
    enum class After { kSetToNone, kZeroed, kKept };
    for (const After after : {After::kSetToNone, After::kZeroed, After::kKept}) {
      RANK_INFO("gradients after the failure: " << static_cast<int>(after));
      // That wire fails a sum whose buffer is written to before it has come.
      if (after == After::kZeroed && wire_ == test::Wire::kLate) continue;
      const auto hook = net->first->weight.register_hook([](const torch::Tensor& gradient) -> torch::Tensor {
        if (gradient.defined()) throw std::domain_error("mine");
        return gradient;
      });
      RANK_CHECK_THAT(message_of(backward), ContainsSubstring("mine"));
      net->first->weight.remove_hook(hook);
      if (after != After::kKept) net->zero_grad(after == After::kSetToNone);
      RANK_CHECK(message_of(backward) == "");
      const int times = after == After::kKept ? 2 : 1;
      expect_close(net->second->weight.grad(), expected[2] * times);
      expect_close(net->second->bias.grad(), expected[3] * times);
      net->zero_grad();
    }
  });
}

TEST_CASE("Features: join refuses delayed parameters which a joined rank could not reduce") {
  run_ranks(2, [](const GroupHandle& group) {
    DistributedDataParallel<TwoLayers> model(make<TwoLayers>(7), group,
                                             {.delayed = {.names = {"second.bias"}, .trigger = "first.weight"}});
    RANK_CHECK_THAT(message_of([&] { model->join([] {}); }), ContainsSubstring("cannot be combined"));
  });
}

TEST_CASE_METHOD(Features, "Features: buckets can end after named parameters") {
  run(2, [&](const GroupHandle& group) {
    auto net = make<TwoLayers>(8);
    DistributedDataParallel<TwoLayers> model(net, group, {.bucket_ends = {"second.weight"}});
    for (int step = 0; step < 3; ++step) {
      net->zero_grad();
      model(numbers({2, 6}, group.rank())).square().sum().backward();
    }
    const auto expected = mean_gradients<TwoLayers>(8, 2, [&](TwoLayers& alone, int rank) {
      alone(numbers({2, 6}, rank)).square().sum().backward();
    });
    for (size_t i = 0; i < expected.size(); ++i) expect_close(net->parameters()[i].grad(), expected[i]);
    RANK_CHECK(model->logging_data().bucket_bytes.size() == 2U);
  });
}

struct LookupImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& rows) { return head(table(rows)); }
  torch::nn::Embedding table =
      register_module("table", torch::nn::Embedding(torch::nn::EmbeddingOptions(8, 4).sparse(true)));
  torch::nn::Linear head = register_module("head", torch::nn::Linear(4, 1));
};
TORCH_MODULE(Lookup);

TEST_CASE_METHOD(Features, "Features: sparse gradients are reduced as such") {
  run(2, [&](const GroupHandle& group) {
    auto net = make<Lookup>(9);
    DistributedDataParallel<Lookup> model(net, group);
    const auto rows = [](int rank) { return here(torch::tensor({rank, 3, 5 + rank}, torch::kLong)); };
    for (int step = 0; step < 3; ++step) {
      net->zero_grad();
      model(rows(group.rank())).sum().backward();
      const auto expected =
          mean_gradients<Lookup>(9, 2, [&](Lookup& alone, int rank) { alone(rows(rank)).sum().backward(); });
      RANK_REQUIRE(net->table->weight.grad().is_sparse());
      expect_close(net->table->weight.grad().to_dense(), expected[0].to_dense());
      expect_close(net->head->weight.grad(), expected[1]);
    }
  });
}

TEST_CASE_METHOD(Features, "Features: an automatic bucket size settles on one that all ranks share") {
  run(3, [&](const GroupHandle& group) {
    auto layer = torch::nn::Linear(nullptr);
    {
      static std::mutex mutex;
      const std::lock_guard lock(mutex);
      layer = placed(torch::nn::Linear(512, 512));
    }
    DistributedDataParallel<torch::nn::Linear> model(layer, group, {.bucket_cap_bytes = kAutoBucketCap});
    RANK_CHECK_FALSE(model->logging_data().bucket_cap_settled);
    for (int step = 0; step < 40 && !model->logging_data().bucket_cap_settled; ++step) {
      layer->zero_grad();
      model(numbers({2, 512}, group.rank() + step)).sum().backward();
      const auto all = all_gather(layer->bias.grad(), group);
      expect_equal(all[0], all[2]);
    }
    const auto data = model->logging_data();
    RANK_CHECK(data.bucket_cap_settled);
    const auto caps = all_gather(here(torch::tensor({data.bucket_cap_bytes}, torch::kLong)), group);
    expect_equal(caps[0], caps[1]);
    expect_equal(caps[0], caps[2]);
  });
}

TEST_CASE_METHOD(Features, "Features: L-BFGS keeps ranks equal when its closure returns the loss of all of them") {
  run(3, [&](const GroupHandle& group) {
    auto net = make<TwoLayers>(1);
    DistributedDataParallel<TwoLayers> model(net, group);
    torch::optim::LBFGS optimizer(net->parameters(),
                                  torch::optim::LBFGSOptions(1).max_iter(6).line_search_fn("strong_wolfe"));
    std::vector<double> losses;
    const auto closure = [&] {
      optimizer.zero_grad();
      const auto loss = (model(numbers({4, 6}, group.rank())) - group.rank()).square().mean();
      loss.backward();
      const auto of_all = reduce_tensor(loss, group);
      losses.push_back(of_all.item<double>());
      return of_all;
    };
    for (int step = 0; step < 4; ++step) optimizer.step(closure);
    RANK_CHECK(losses.back() < losses.front());
    for (const auto& parameter : net->parameters()) {
      const auto all = all_gather(parameter.detach(), group);
      expect_equal(all[0], all[1]);
      expect_equal(all[0], all[2]);
    }
  });
}

TEST_CASE("Features: logging data tells buckets and times") {
  run_ranks(2, [](const GroupHandle& group) {
    auto net = make<TwoLayers>(1);
    DistributedDataParallel<TwoLayers> model(net, group, {.bucket_cap_bytes = 100});
    for (int step = 0; step < 4; ++step) model(numbers({2, 6}, group.rank())).sum().backward();
    const auto data = model->logging_data();
    RANK_CHECK(data.world_size == 2);
    RANK_CHECK(data.parameter_tensors == 4);
    RANK_CHECK(data.parameter_bytes == 4 * (48 + 8 + 24 + 3));
    RANK_CHECK(data.has_rebuilt_buckets);
    RANK_CHECK(data.bucket_bytes == std::vector<int64_t>{4 * (3 + 24), 4 * (8 + 48)});
    RANK_CHECK(data.last.backward.count() > 0);
    RANK_CHECK(data.average.communication.count() > 0);
    RANK_CHECK_THAT(data.table(), ContainsSubstring("TwoLayers") && ContainsSubstring("108, 224 bytes"));
  });
}

TEST_CASE("Features: a single process has no reducer and the same interface") {
  auto group = init_process_group({.rank_info = RankInfo{}});
  auto net = make<TwoLayers>(1);
  DistributedDataParallel<TwoLayers> model(net, group, {.find_unused_parameters = true, .static_graph = true});
  const auto expected = mean_gradients<TwoLayers>(1, 1, [&](TwoLayers& alone, int) {
    alone(numbers({2, 6}, 0)).sum().backward();
  });
  model->join([&] { model(numbers({2, 6}, 0)).sum().backward(); });
  for (size_t i = 0; i < expected.size(); ++i) expect_equal(net->parameters()[i].grad(), expected[i]);
  CHECK(model->logging_data().world_size == 1);
  CHECK(is_wrapped(*net));
}

}  // namespace
}  // namespace ddp

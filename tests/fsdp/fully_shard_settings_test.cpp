// fully_shard(): what a program sets of a model and of single units, ignored parameters, and functions beside forward.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/rnn.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "comm/core/call_log.h"
#include "comm/group/group_state.h"
#include "ddprun/checkpoint/checkpoint_manager.h"
#include "ddprun/comm/device_mesh.h"
#include "ddprun/comm/join.h"
#include "ddprun/fsdp/fully_shard.h"
#include "tests/fsdp/has_memory.h"
#include "tests/fsdp/nets.h"
#include "tests/support/catch.h"
#include "tests/support/errors.h"
#include "tests/support/every_wire.h"
#include "tests/support/rank_checks.h"
#include "tests/support/ranks.h"
#include "tests/support/temporary_folder.h"

namespace ddp {
namespace {

using Catch::Matchers::ContainsSubstring;
using test::Block;
using test::error_of;
using test::here;
using test::Net;
using test::placed;
using test::run_ranks;
using test::words;

FullyShardOptions three_units() {
  return {.units = {children({"embedding"}), each<Block>()}};
}

at::Tensor rows(const GroupHandle& group) {
  return here((at::arange(6, at::kFloat) * (2 + group.rank())).cos().view({2, 3}));
}

// What the ranks have gathered and reduced meanwhile, in order: "p second", "g the root".
std::vector<std::string> calls_during(const GroupHandle& group, const std::function<void()>& body) {
  const auto calls = [&] {
    std::vector<detail::CallRecord> all = group.state().log().report().calls;
    return all;
  };
  const std::vector<detail::CallRecord> before = calls();
  const uint64_t first = before.empty() ? 0 : before.back().number + 1;
  body();
  std::vector<std::string> names;
  for (const detail::CallRecord& call : calls()) {
    const size_t unit = call.signature.find(" of unit ");
    if (call.number < first || unit == std::string::npos) continue;
    const size_t begin = unit + std::string(" of unit ").size();
    const bool is_gather = call.signature.find("parameters") != std::string::npos;
    names.push_back((is_gather ? "p " : "g ") + call.signature.substr(begin, call.signature.find(')') - begin));
  }
  return names;
}

using Names = std::vector<std::string>;

TEST_CASE_METHOD(test::EveryWire, "Settings: gradients are divided by the factor that is set") {
  run(3, [](const GroupHandle& group) {
    std::vector<at::Tensor> by_ranks;
    for (const double factor : {0.0, 6.0, 3.0, 1.0}) {
      for (const bool only_sums : {false, true}) {
        auto model = fully_shard(placed(Net()), group, three_units());
        if (factor != 0) model->set_gradient_divide_factor(factor);
        model->set_force_sum_reduction_for_comms(only_sums);
        model(words(group.rank(), 0)).pow(2).sum().backward();
        if (by_ranks.empty()) {
          for (const at::Tensor& shard : model->parameters()) by_ranks.push_back(shard.grad());
        }
        size_t next = 0;
        const double scale = factor == 0 ? 1 : 3 / factor;
        for (const at::Tensor& shard : model->parameters()) {
          RANK_CHECK(at::allclose(shard.grad(), by_ranks[next++] * scale, 1e-5, 1e-6));
        }
      }
    }
  });
}

// LibTorch's SGD steps past version counters. A forward for evaluation may be between.
TEST_CASE("Settings: what is kept after a backward is gathered again after an optimizer's step") {
  for (const bool evaluates : {false, true}) {
    run_ranks(2, [&](const GroupHandle& group) {
      const auto trained = [&](bool reshards) {
        auto model = fully_shard(placed(Net()), group, {.units = {each<Block>()}});
        model->set_reshard_after_backward(reshards);
        torch::optim::SGD optimizer(model->parameters(), 0.1);
        for (int step = 0; step < 3; ++step) {
          model(test::words(group.rank(), step)).pow(2).mean().backward();
          if (evaluates) {
            const at::NoGradGuard no_grad;
            model(test::words(group.rank(), step));
          }
          optimizer.step();
          optimizer.zero_grad();
        }
        std::vector<at::Tensor> values;
        for (const auto& item : model->named_parameters()) values.push_back(model->full_parameter(item.key()));
        return values;
      };
      const std::vector<at::Tensor> expected = trained(true);
      const std::vector<at::Tensor> kept = trained(false);
      for (size_t i = 0; i < expected.size(); ++i) RANK_CHECK(at::equal(kept[i], expected[i]));
    });
  }
}

TEST_CASE("Settings: a factor is divided by once where one rank has all shards") {
  run_ranks(1, [](const GroupHandle& group) {
    for (const auto dtype : {at::kFloat, at::kHalf}) {
      for (const bool only_sums : {false, true}) {
        Block net = placed(Block(3, 3));
        test::fill_parameters(*net);
        Block plain = placed(Block(3, 3));
        test::fill_parameters(*plain);
        auto model = fully_shard(net, group, {.policy = {.reduce_dtype = dtype}});
        model->set_gradient_divide_factor(4);
        model->set_force_sum_reduction_for_comms(only_sums);
        model(rows(group)).sum().backward();
        (plain(rows(group)).sum() / 4).backward();
        RANK_CHECK(at::allclose(model->parameters()[0].grad(), plain->parameters()[0].grad(), 1e-2, 1e-3));
      }
    }
  });
}

TEST_CASE("Settings: a factor that is not a number above 0 is refused; one unit may have its own") {
  run_ranks(2, [](const GroupHandle& group) {
    auto model = fully_shard(placed(Net()), group, three_units());
    for (const double factor : {0.0, -2.0, std::numeric_limits<double>::infinity()}) {
      RANK_CHECK_THAT(error_of<std::invalid_argument>([&] { model->set_gradient_divide_factor(factor); }),
                      ContainsSubstring("expected a finite number above 0"));
    }
    RANK_CHECK_THAT(error_of<std::invalid_argument>([&] { model->unit("third"); }), ContainsSubstring("'third'"));
    auto other = fully_shard(placed(Net()), group, three_units());
    other->unit("second").set_gradient_divide_factor(4);
    for (auto* one : {&model, &other}) (*one)(words(group.rank(), 0)).sum().backward();
    const auto gradient = [](auto& of, const char* name) { return of->named_parameters()[name].grad(); };
    RANK_CHECK(at::allclose(gradient(other, "second.mix.weight"), gradient(model, "second.mix.weight") / 2));
    RANK_CHECK(at::equal(gradient(other, "first.mix.weight"), gradient(model, "first.mix.weight")));
  });
}

struct ChoiceImpl : torch::nn::Module {
  ChoiceImpl() : a(register_module("a", Block(3, 3))), b(register_module("b", Block(3, 3))) {
    test::fill_parameters(*this);
  }
  at::Tensor forward(const at::Tensor& x) { return uses_b ? b(x) : a(x); }
  Block a, b;
  bool uses_b = false;
};
TORCH_MODULE(Choice);

TEST_CASE("Settings: parameters that a rank does not use are reduced with zeros") {
  run_ranks(2, [](const GroupHandle& group) {
    Choice net = placed(Choice());
    auto model = fully_shard(net, group);
    model->set_reduce_scatter_unused_params(true);
    net->uses_b = group.rank() == 1;
    model(rows(group)).sum().backward();
    Choice plain = placed(Choice());
    for (const int rank : {0, 1}) {
      plain->uses_b = rank == 1;
      (plain(here((at::arange(6, at::kFloat) * (2 + rank)).cos().view({2, 3}))).sum() / 2).backward();
    }
    for (const auto& shard : model->named_parameters()) {
      const at::Tensor whole = plain->named_parameters()[shard.key()].grad();
      const int64_t first = group.rank() == 0 ? 0 : (whole.size(0) + 1) / 2;
      RANK_REQUIRE(shard.value().grad().defined());
      RANK_CHECK(at::allclose(shard.value().grad(), whole.narrow(0, first, shard.value().size(0)), 1e-4, 1e-6));
    }
  });
}

TEST_CASE("Settings: a unit that no forward has used has no gradient") {
  run_ranks(2, [](const GroupHandle& group) {
    auto model = fully_shard(placed(Choice()), group, {.units = {each<Block>()}});
    model->set_reduce_scatter_unused_params(true);
    model(rows(group)).sum().backward();
    RANK_CHECK(model->named_parameters()["a.up.weight"].grad().defined());
    RANK_CHECK(!model->named_parameters()["b.up.weight"].grad().defined());
  });
}

TEST_CASE("Settings: ignored parameters stay as they are") {
  run_ranks(2, [](const GroupHandle& group) {
    Net net = placed(Net());
    {
      const at::NoGradGuard no_grad;
      net->head->bias.fill_(10 + group.rank());
    }
    FullyShardOptions options = three_units();
    options.ignored_params = {net->head->bias, net->first->mix->weight};
    auto model = fully_shard(net, group, options);
    const auto named = model->named_parameters();
    RANK_CHECK(named.keys() == Net()->named_parameters().keys());
    RANK_CHECK(named["head.bias"].is_same(net->head->bias));
    RANK_CHECK(named["head.bias"].size(0) == 2);
    RANK_CHECK(named["head.bias"][0].item<float>() == static_cast<float>(10 + group.rank()));
    model(words(group.rank(), 0)).sum().backward();
    RANK_CHECK(at::equal(net->head->bias.grad(), here(at::ones({2}) * 6)));
    RANK_CHECK(net->first->mix->weight.grad().sizes() == net->first->mix->weight.sizes());
    const at::Tensor before = net->head->bias.grad().clone();
    RANK_CHECK(model->clip_grad_norm_(1e-3).item<float>() > 0);
    RANK_CHECK(at::equal(net->head->bias.grad(), before));
    RANK_CHECK(at::equal(model->full_parameter("head.bias"), net->head->bias));
    model->set_full_parameter("head.bias", here(at::zeros({2})));
    RANK_CHECK(at::equal(net->head->bias, here(at::zeros({2}))));
    RANK_CHECK_THAT(error_of<std::invalid_argument>([&] { model->set_full_parameter("head.bias", at::ones({1})); }),
                    ContainsSubstring("[2]"));
    RANK_CHECK_THAT(error_of<std::invalid_argument>(
                        [&] { fully_shard(placed(Net()), group, {.ignored_params = {at::ones({2})}}); }),
                    ContainsSubstring("ignored_params is not a parameter of the model"));
  });
}

TEST_CASE("Settings: a checkpoint has ignored parameters whole") {
  const test::TemporaryFolder folder;
  run_ranks(2, [&](const GroupHandle& group) {
    const auto make = [&] {
      Net net = placed(Net());
      FullyShardOptions options = three_units();
      options.ignored_params = {net->head->bias};
      return fully_shard(net, group, options);
    };
    CheckpointManager checkpoints(folder.path(), group);
    auto model = make();
    model->set_full_parameter("head.bias", here(at::ones({2}) * 7));
    model->set_full_parameter("head.weight", here(at::ones({2, 3}) * 5));
    checkpoints.save(1, {.model = model});
    auto other = make();
    RANK_REQUIRE(checkpoints.load_latest({.model = other}).has_value());
    RANK_CHECK(at::equal(other->full_parameter("head.bias"), here(at::ones({2}) * 7)));
    RANK_CHECK(at::equal(other->full_parameter("head.weight"), here(at::ones({2, 3}) * 5)));
  });
}

TEST_CASE("Settings: units are gathered in the order that is set") {
  run_ranks(2, [](const GroupHandle& group) {
    auto model = fully_shard(placed(Net()), group, three_units());
    const auto step = [&] { return calls_during(group, [&] { model(words(group.rank(), 0)).sum().backward(); }); };
    RANK_CHECK(step() == Names{"p the root", "p embedding", "p first", "p second", "p second", "p first", "g second",
                               "p embedding", "g first", "g the root", "g embedding"});
    model->unit("").set_modules_to_forward_prefetch({"embedding", "first"});
    model->unit("second").set_modules_to_backward_prefetch({"embedding", "first"});
    RANK_CHECK(step() == Names{"p the root", "p embedding", "p first", "p second", "p second", "p embedding", "p first",
                               "g second", "g first", "g the root", "g embedding"});
    model->unit("").set_modules_to_forward_prefetch({});
    model->unit("second").set_modules_to_backward_prefetch({});
    model->unit("embedding").set_unshard_in_backward(false);
    model->unit("first").set_reshard_after_forward(false);
    RANK_CHECK(step() == Names{"p the root", "p embedding", "p first", "p second", "p second", "g second", "g first",
                               "g the root", "g embedding"});
    model->set_reshard_after_forward(true);
    RANK_CHECK(step().size() == 11);  // the root's once more, the embedding's not
    RANK_CHECK_THAT(
        error_of<std::invalid_argument>([&] { model->unit("first").set_modules_to_forward_prefetch({"head"}); }),
        ContainsSubstring("no unit has a module 'head'"));
  });
}

// Three layers, of which the last two may change places.
struct WaysImpl : torch::nn::Module {
  at::Tensor forward(at::Tensor x) {
    x = a(x);
    after_a();
    return is_swapped ? b(c(x)) : c(b(x));
  }
  torch::nn::Linear a = register_module("a", torch::nn::Linear(3, 3));
  torch::nn::Linear b = register_module("b", torch::nn::Linear(3, 3));
  torch::nn::Linear c = register_module("c", torch::nn::Linear(3, 3));
  bool is_swapped = false;
  std::function<void()> after_a = [] {};
};
TORCH_MODULE(Ways);

TEST_CASE("Settings: a forward gathers in advance what the one before used next") {
  run_ranks(2, [](const GroupHandle& group) {
    Ways net = placed(Ways());
    Ways whole = placed(Ways());
    {
      const at::NoGradGuard no_grad;
      for (const auto& parameter : net->named_parameters()) {
        parameter.value().copy_(at::arange(parameter.value().numel()).view_as(parameter.value()).sin());
        whole->named_parameters()[parameter.key()].copy_(parameter.value());
      }
    }
    auto model = fully_shard(net, group, {.units = {children({"a", "b", "c"})}});
    const auto forward = [&](bool is_swapped) {
      net->is_swapped = whole->is_swapped = is_swapped;
      return calls_during(group, [&] { RANK_CHECK(at::equal(model(rows(group)), whole(rows(group)))); });
    };
    std::string last;
    net->after_a = [&] { last = group.state().log().report().calls.back().signature; };
    for (const bool has_gradients : {true, false}) {
      const at::AutoGradMode mode(has_gradients);
      RANK_CHECK(forward(false) == Names{"p a", "p b", "p c"});
      RANK_CHECK_THAT(last, ContainsSubstring("unit a)"));
      RANK_CHECK(forward(false) == Names{"p a", "p b", "p c"});
      RANK_CHECK_THAT(last, ContainsSubstring("unit b)"));
      // Unit b was gathered in vain, and again when it was used.
      RANK_CHECK(forward(true) == Names{"p a", "p b", "p c", "p b"});
      RANK_CHECK(forward(true) == Names{"p a", "p c", "p b"});
      RANK_CHECK_THAT(last, ContainsSubstring("unit c)"));
      forward(false);
    }
    net->after_a = [] { throw std::runtime_error("stop"); };
    RANK_CHECK(error_of<std::runtime_error>([&] { model(rows(group)); }) == "stop");
    net->after_a = [] {};
    RANK_CHECK(forward(false) == Names{"p a", "p b", "p c"});
    for (const at::Tensor& parameter : {net->a->weight, net->b->weight, net->c->weight}) {
      RANK_CHECK(!test::has_memory(parameter));
    }
  });
}

TEST_CASE("Settings: units that need no values in the backward have them when an operator does") {
  run_ranks(2, [](const GroupHandle& group) {
    std::vector<at::Tensor> gradients;
    for (const bool unshards : {true, false}) {
      auto model = fully_shard(placed(Net()), group, three_units());
      for (const char* name : {"embedding", "first", "second"}) model->unit(name).set_unshard_in_backward(unshards);
      model(words(group.rank(), 0)).pow(2).sum().backward();
      for (const at::Tensor& shard : model->parameters()) gradients.push_back(shard.grad());
    }
    for (size_t i = 0; i < gradients.size() / 2; ++i) {
      RANK_CHECK(at::equal(gradients[i], gradients[i + gradients.size() / 2]));
    }
  });
}

TEST_CASE("Settings: a unit that the program gathers is there for reads and for the next forward") {
  run_ranks(2, [](const GroupHandle& group) {
    for (const bool is_async : {false, true}) {
      Net net = placed(Net());
      auto model = fully_shard(net, group, three_units());
      model->unit("first").unshard(is_async);
      {
        const at::NoGradGuard no_grad;
        RANK_CHECK(at::equal(net->first->up->weight + 0, placed(Net())->first->up->weight));
      }
      // Not for gradients, and not what is not gathered.
      RANK_CHECK_THAT(error_of<std::logic_error>([&] { net->first->up->weight.sum(); }), ContainsSubstring("outside"));
      {
        const at::NoGradGuard no_grad;
        RANK_CHECK_THAT(error_of<std::logic_error>([&] { net->head->weight.sum(); }), ContainsSubstring("outside"));
      }
      const Names forward = calls_during(group, [&] {
        const at::NoGradGuard no_grad;
        model(words(group.rank(), 0));
      });
      RANK_CHECK(forward == Names{"p the root", "p embedding", "p second"});
      RANK_CHECK(!test::has_memory(net->first->up->weight));

      model->unit("first").unshard(is_async);
      model->unit("first").reshard();
      RANK_CHECK(!test::has_memory(net->first->up->weight));

      // One that is old is gathered again.
      model->unit("first").unshard(is_async);
      {
        const at::NoGradGuard no_grad;
        for (at::Tensor& shard : model->parameters()) shard.mul_(2);
        Net doubled = placed(Net());
        for (at::Tensor& parameter : doubled->parameters()) parameter.mul_(2);
        RANK_CHECK(at::allclose(model(words(0, 0)), doubled(words(0, 0))));
      }
    }
  });
}

TEST_CASE("Settings: forwards before their backwards, which know each other's order") {
  run_ranks(2, [](const GroupHandle& group) {
    std::vector<at::Tensor> gradients;
    for (const bool says_last : {false, true}) {
      auto model = fully_shard(placed(Net()), group, three_units());
      const at::Tensor first = model(words(group.rank(), 0)).pow(2).sum();
      const at::Tensor second = model(words(group.rank(), 1)).pow(2).sum();
      model->set_is_last_backward(!says_last);
      first.backward();
      model->set_is_last_backward(true);
      const Names calls = calls_during(group, [&] { second.backward(); });
      const Names expected{"p the root",  "p second", "p first",    "g second",
                           "p embedding", "g first",  "g the root", "g embedding"};
      RANK_CHECK((calls == expected) == says_last);  // else the first backward has dropped the order
      for (const at::Tensor& shard : model->parameters()) gradients.push_back(shard.grad());
    }
    for (size_t i = 0; i < gradients.size() / 2; ++i) {
      RANK_CHECK(at::equal(gradients[i], gradients[i + gradients.size() / 2]));
    }
  });
}

TEST_CASE("Settings: another function of the model is run as its forward") {
  run_ranks(2, [](const GroupHandle& group) {
    Net net = placed(Net());
    Net plain = placed(Net());
    auto model = fully_shard(net, group, three_units());
    const at::Tensor hidden = model->run([&] { return net->first(net->embedding(words(0, 0))); });
    RANK_CHECK(at::allclose(hidden, plain->first(plain->embedding(words(0, 0)))));
    hidden.sum().backward();
    RANK_CHECK(model->named_parameters()["first.up.weight"].grad().defined());
    RANK_CHECK(!model->named_parameters()["second.up.weight"].grad().defined());
    int calls = 0;
    model->run([&] { ++calls; });
    RANK_CHECK(calls == 1);
  });
}

TEST_CASE("Settings: join() refuses a sharded model by name") {
  run_ranks(2, [](const GroupHandle& group) {
    auto model = fully_shard(placed(Net()), group);
    bool has_run = false;
    RANK_CHECK_THAT(error_of<std::logic_error>([&] { join({model.get()}, [&] { has_run = true; }); }),
                    ContainsSubstring("join() cannot shadow a model of fully_shard()"));
    RANK_CHECK(!has_run);
  });
}

// Gradients of earlier backwards that were not reduced, where a forward uses a unit twice.
struct AgainImpl : torch::nn::Module {
  AgainImpl() : a(register_module("a", Block(3, 3))), b(register_module("b", Block(3, 3))) {
    test::fill_parameters(*this);
  }
  at::Tensor forward(const at::Tensor& x) { return a(b(a(x))); }
  Block a, b;
};
TORCH_MODULE(Again);

TEST_CASE("Settings: what earlier backwards have left is reduced apart where a forward uses a unit twice") {
  run_ranks(2, [](const GroupHandle& group) {
    auto model = fully_shard(placed(Again()), group, {.units = {each<Block>()}});
    model->set_requires_gradient_sync(false);
    model(rows(group).requires_grad_()).sum().backward();
    model->set_requires_gradient_sync(true);
    const at::Tensor loss = model(rows(group).requires_grad_()).sum();
    const Names calls = calls_during(group, [&] { loss.backward(); });
    RANK_CHECK(std::ranges::count(calls, "g a") == 2);
    RANK_CHECK(std::ranges::count(calls, "g b") == 1);
    auto other = fully_shard(placed(Again()), group, {.units = {each<Block>()}});
    for (int i = 0; i < 2; ++i) other(rows(group).requires_grad_()).sum().backward();
    for (size_t i = 0; i < model->parameters().size(); ++i) {
      RANK_CHECK(at::allclose(model->parameters()[i].grad(), other->parameters()[i].grad(), 1e-4, 1e-6));
    }
  });
}

TEST_CASE("Settings: sums that wait for the replicas may get parameters that were not used before") {
  run_ranks(4, [](const GroupHandle& group) {
    DeviceMesh mesh = init_device_mesh(group, {2, 2}, {"replicate", "shard"});
    std::vector<at::Tensor> gradients;
    for (const bool waits : {false, true}) {
      Choice net = placed(Choice());
      auto model = fully_shard(net, mesh);  // a unit of both parts
      for (const bool uses_b : {true, false, true}) {
        net->uses_b = uses_b;
        model->set_requires_all_reduce(!waits);
        model(rows(group)).pow(2).sum().backward();
      }
      model->set_requires_all_reduce(true);
      model(rows(group)).pow(2).sum().backward();
      for (const at::Tensor& shard : model->parameters()) gradients.push_back(shard.grad());
    }
    for (size_t i = 0; i < gradients.size() / 2; ++i) {
      RANK_CHECK(at::allclose(gradients[i], gradients[i + gradients.size() / 2], 1e-4, 1e-6));
    }
  });
}

struct RecurrentImpl : torch::nn::Module {
  RecurrentImpl()
      : lstm(register_module("lstm", torch::nn::LSTM(torch::nn::LSTMOptions(3, 4).num_layers(2).bidirectional(true)))),
        gru(register_module("gru", torch::nn::GRU(8, 5))),
        head(register_module("head", torch::nn::Linear(5, 1))) {
    test::fill_parameters(*this);
  }
  at::Tensor forward(const at::Tensor& x) { return head(std::get<0>(gru(std::get<0>(lstm(x))))); }
  torch::nn::LSTM lstm;
  torch::nn::GRU gru;
  torch::nn::Linear head;
};
TORCH_MODULE(Recurrent);

TEST_CASE("Settings: LSTM and GRU are units") {
  run_ranks(2, [](const GroupHandle& group) {
    const auto input = [](int rank) { return here((at::arange(30, at::kFloat) * (1 + rank)).sin().view({5, 2, 3})); };
    Recurrent plain = placed(Recurrent());
    auto model = fully_shard(placed(Recurrent()), group, {.units = {children({"lstm", "gru"})}});
    torch::optim::SGD of_plain(plain->parameters(), 0.1);
    torch::optim::SGD optimizer(model->parameters(), 0.1);
    for (int step = 0; step < 3; ++step) {
      of_plain.zero_grad();
      for (const int rank : {0, 1}) (plain(input(rank + step)).pow(2).sum() / 2).backward();
      of_plain.step();
      optimizer.zero_grad();
      model(input(group.rank() + step)).pow(2).sum().backward();
      optimizer.step();
    }
    for (const auto& parameter : plain->named_parameters()) {
      RANK_CHECK(at::allclose(model->full_parameter(parameter.key()), parameter.value(), 1e-4, 1e-5));
    }
  });
}

}  // namespace
}  // namespace ddp

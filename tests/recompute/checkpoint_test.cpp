// Regions give the bits of the same forward without them, whatever goes in and comes out.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/List.h>
#include <catch2/catch_test_macros.hpp>
#include <torch/csrc/autograd/autograd.h>

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <tuple>

#include "ddprun/amp/autocast.h"
#include "ddprun/recompute/recompute.h"
#include "ddprun/recompute/save_on_cpu.h"
#include "tests/recompute/regions.h"

namespace ddp::regions {
namespace {

TEST_CASE("Recompute: a region has the bits of the plain forward, with dropout and in-place operators") {
  auto net = block();
  const Function plain = [&](const at::Tensor& x) { return net->forward(x); };
  const Outcome expected = outcome(*net, plain);
  for (const bool early_stop : {true, false}) {
    const RecomputeOptions options{.early_stop = early_stop};
    CHECK(equal(outcome(*net, [&](const at::Tensor& x) { return checkpoint(options, plain, x); }), expected));
    CHECK(equal(outcome(*net, [&](const at::Tensor& x) { return checkpoint(options, net, x); }), expected));
  }
}

TEST_CASE("Recompute: the function runs again once for each backward, and not without one") {
  auto net = block();
  int runs = 0;
  const auto counted = [&](const at::Tensor& x) {
    ++runs;
    return net->forward(x);
  };
  const at::Tensor input = here(at::rand({8, 16})).requires_grad_();
  const at::Tensor result = checkpoint(counted, input);
  CHECK(runs == 1);
  result.sum().backward({}, /*retain_graph=*/true);
  CHECK(runs == 2);
  const at::Tensor once = input.grad().clone();
  result.sum().backward();
  CHECK(runs == 3);
  CHECK(at::equal(input.grad(), once * 2));
  CHECK_THROWS(result.sum().backward());
  runs = 0;
  {
    const at::NoGradGuard no_gradients;
    checkpoint(counted, input);
  }
  {
    const c10::InferenceMode inference;
    checkpoint(counted, here(at::rand({8, 16})));
  }
  CHECK(runs == 2);
}

TEST_CASE("Recompute: what the backward needs does not live between forward and backward") {
  const at::Tensor input = here(at::rand({64})).requires_grad_();
  std::vector<c10::weak_intrusive_ptr<c10::TensorImpl>> saved;
  const auto function = [&](const at::Tensor& x) {
    const at::Tensor y = x.exp();  // which keeps its result
    saved.emplace_back(y.getIntrusivePtr());
    return y.sin();
  };
  const at::Tensor plain = function(input);
  CHECK(!saved.back().expired());
  const at::Tensor result = checkpoint(function, input);
  CHECK(saved.back().expired());
  result.sum().backward();
  CHECK(saved.back().expired());
}

TEST_CASE("Recompute: autograd::grad, a gradient of a gradient, and frozen inputs") {
  const auto function = [](const at::Tensor& x) { return x.sin().mul(x).exp(); };
  const at::Tensor input = here(at::rand({5}, at::kDouble)).requires_grad_();
  const auto second = [&](bool is_region) {
    const at::Tensor y = is_region ? checkpoint(function, input) : function(input);
    const auto first = torch::autograd::grad({y.sum()}, {input}, {}, std::nullopt, /*create_graph=*/true);
    return torch::autograd::grad({first[0].pow(2).sum()}, {input})[0];
  };
  CHECK(at::equal(second(true), second(false)));
  const at::Tensor weight = here(at::rand({5}, at::kDouble)).requires_grad_();
  const at::Tensor frozen = here(at::rand({5}, at::kDouble));
  checkpoint([&](const at::Tensor& x) { return x.mul(weight).tanh(); }, frozen).sum().backward();
  const at::Tensor gradient = weight.grad().clone();
  weight.mutable_grad() = at::Tensor();
  frozen.mul(weight).tanh().sum().backward();
  CHECK(at::equal(gradient, weight.grad()));
}

struct Pair {
  at::Tensor left;
  at::Tensor right;
};

template <typename Visit>
void visit_tensors(Pair& pair, Visit&& visit) {
  visit(pair.left);
  visit(pair.right);
}

TEST_CASE("Recompute: tensors go in and come out of structures") {
  const at::Tensor a = here(at::rand({4})).requires_grad_();
  const at::Tensor b = here(at::rand({4})).requires_grad_();
  const auto gradients = [&](const at::Tensor& sum) { return torch::autograd::grad({sum}, {a, b}); };
  const auto expected = gradients((a * b).sin().sum() + (a * b).sum());
  const auto check = [&](const at::Tensor& sum) {
    const auto got = gradients(sum);
    CHECK(at::equal(got[0], expected[0]));
    CHECK(at::equal(got[1], expected[1]));
  };
  {
    const auto [x, y] = checkpoint([](const at::Tensor& left, const at::Tensor& right,
                                      double one) { return std::make_tuple((left * right * one).sin(), left * right); },
                                   a, b, 1.0);
    check(x.sum() + y.sum());
  }
  {
    const std::vector<at::Tensor> in{a, b};
    const auto out = checkpoint(
        [](const std::vector<at::Tensor>& all) {
          return std::vector<at::Tensor>{(all[0] * all[1]).sin(), all[0] * all[1]};
        },
        in);
    check(out[0].sum() + out[1].sum());
  }
  {
    bool is_none = true;
    const Pair out = checkpoint(
        [&](const std::pair<at::Tensor, std::optional<at::Tensor>>& all, const std::optional<at::Tensor>& none) {
          is_none = is_none && !none;
          return Pair{(all.first * *all.second).sin(), all.first * *all.second};
        },
        std::pair<at::Tensor, std::optional<at::Tensor>>(a, b), std::optional<at::Tensor>());
    check(out.left.sum() + out.right.sum());
    CHECK(is_none);
  }
  {
    const Pair out = checkpoint(
        [](const Pair& p) {
          return Pair{(p.left * p.right).sin(), p.left * p.right};
        },
        Pair{a, b});
    check(out.left.sum() + out.right.sum());
  }
  {
    const std::array<at::Tensor, 2> both{a, b};
    const auto out =
        checkpoint([](at::TensorList all) { return (all[0] * all[1]).sin() + all[0] * all[1]; }, at::TensorList(both));
    check(out.sum());
  }
  {
    at::Tensor out;
    checkpoint([&](const at::Tensor& x, const at::Tensor& y) { out = (x * y).sin() + x * y; }, a, b);
    check(out.sum());
  }
}

TEST_CASE("Recompute: a captured tensor behind a pointer stays the program's") {
  const auto held = std::make_shared<at::Tensor>(here(at::rand({3})).requires_grad_());
  checkpoint([](const std::shared_ptr<at::Tensor>& tensor) { return tensor->sin(); }, held).sum().backward();
  CHECK(at::equal(held->grad(), held->detach().cos()));
}

TEST_CASE("Recompute: what lies behind pointers in structures is not touched") {
  at::Tensor mine = here(at::rand({3})).requires_grad_();
  const std::vector<at::Tensor*> pointers{&mine};
  const std::pair<std::shared_ptr<at::Tensor>, std::optional<at::Tensor*>> more{std::make_shared<at::Tensor>(mine),
                                                                                &mine};
  const at::Tensor y = checkpoint(
      [](const auto& all, const auto& pair, std::span<const at::Tensor> view) {
        return all[0]->sin() * pair.first->cos() * **pair.second * view[0].exp();
      },
      pointers, more, std::span<const at::Tensor>(&mine, 1));
  REQUIRE(mine.defined());
  REQUIRE(more.first->defined());
  const at::Tensor expected = torch::autograd::grad({(mine.sin() * mine.cos() * mine * mine.exp()).sum()}, {mine})[0];
  CHECK(at::allclose(torch::autograd::grad({y.sum()}, {mine})[0], expected));
}

TEST_CASE("Recompute: a list whose copies share their items stays the program's") {
  const c10::List<at::Tensor> list({here(at::rand({3})).requires_grad_()});
  const at::Tensor x = list.get(0);
  const auto function = [](const c10::List<at::Tensor>& all) { return all.get(0).sin().exp(); };
  const at::Tensor y = checkpoint(function, list);
  CHECK(at::equal(torch::autograd::grad({y.sum()}, {x})[0], torch::autograd::grad({function(list).sum()}, {x})[0]));
  CHECK(list.get(0).is_same(x));
}

TEST_CASE("Recompute: a backward in inference mode and without grad mode") {
  const at::Tensor input = here(at::rand({3})).requires_grad_();
  const auto function = [](const at::Tensor& x) { return x.sin() * x; };
  const at::Tensor expected = torch::autograd::grad({function(input).sum()}, {input})[0];
  const auto loss = [&] {
    return checkpoint([&](const at::Tensor& x) { return checkpoint(function, x * 1); }, input).sum();
  };
  const at::Tensor first = loss();
  const at::Tensor second = loss();
  {
    const c10::InferenceMode inference;
    CHECK(at::equal(torch::autograd::grad({first}, {input})[0], expected));
    CHECK(c10::InferenceMode::is_enabled());
  }
  const at::NoGradGuard no_gradients;
  CHECK(at::equal(torch::autograd::grad({second}, {input})[0], expected));
}

TEST_CASE("Recompute: a function with state of its own has that of the forward in each second run") {
  const at::Tensor input = here(at::rand({3})).requires_grad_();
  const at::Tensor factor = here(at::rand({3}));
  const at::Tensor y = checkpoint(
      [factor, calls = 0](const at::Tensor& x) mutable { return x.sin() * (factor + ++calls).exp().mul(1); }, input);
  const at::Tensor expected = input.detach().cos() * (factor + 1).exp();
  for (int backward = 0; backward < 3; ++backward) {
    CHECK(at::equal(torch::autograd::grad({y.sum()}, {input}, {}, /*retain_graph=*/true)[0], expected));
  }
}

TEST_CASE("Recompute: a function that must not throw has no early stop") {
  const at::Tensor input = here(at::rand({3})).requires_grad_();
  const at::Tensor y = checkpoint([](const at::Tensor& x) noexcept { return x.sin().exp(); }, input);
  CHECK(torch::autograd::grad({y.sum()}, {input})[0].defined());
}

TEST_CASE("Recompute: a tensor on the meta device has no random numbers and no bytes to copy") {
  const at::Tensor input = at::empty({3}, at::kMeta).requires_grad_();
  const auto function = [](const at::Tensor& x) { return x.sin().exp(); };
  CHECK(torch::autograd::grad({checkpoint(function, input).sum()}, {input})[0].is_meta());
  const save_on_cpu scope;
  CHECK(torch::autograd::grad({function(input).sum()}, {input})[0].is_meta());
}

TEST_CASE("Recompute: autocast of the forward holds in the recomputation") {
  auto net = block();
  const Function plain = [&](const at::Tensor& x) { return net->forward(x); };
  const auto run = [&](bool is_region) {
    return outcome(*net, [&](const at::Tensor& x) {
      const Autocast autocast(test_device(), {.dtype = at::kBFloat16});
      return (is_region ? checkpoint(plain, x) : plain(x)).to(at::kFloat);
    });
  };
  CHECK(equal(run(true), run(false)));
}

TEST_CASE("Recompute: random numbers advance once, or twice when they are not preserved") {
  const auto noisy = [](const at::Tensor& x) { return x * at::rand_like(x).sin(); };
  const auto next = [&](bool preserves) {
    torch::manual_seed(3);
    const at::Tensor input = here(at::ones({4})).requires_grad_();
    checkpoint({.preserve_rng_state = preserves}, noisy, input).sum().backward();
    return at::rand({2}, test_device());
  };
  torch::manual_seed(3);
  at::rand({4}, test_device());
  const at::Tensor after_one = at::rand({2}, test_device());
  CHECK(at::equal(next(true), after_one));
  CHECK(!at::equal(next(false), after_one));
}

TEST_CASE("Recompute: buffers are updated twice as in Python, or once") {
  auto norm = placed(torch::nn::BatchNorm1d(16));
  const auto updates = [&](const RecomputeOptions& options) {
    norm->running_mean.zero_();
    norm->num_batches_tracked.zero_();
    const at::Tensor input = here(at::rand({8, 16})).requires_grad_();
    checkpoint(
        options, [&](const at::Tensor& x) { return norm(x).sin(); }, input)
        .sum()
        .backward();
    return norm->num_batches_tracked.item<int64_t>();
  };
  CHECK(updates({}) == 2);
  CHECK(updates({.update_buffers_once = {norm.ptr()}}) == 1);
}

TEST_CASE("Recompute: is_recomputing() tells the second run from the first") {
  std::vector<bool> seen;
  const at::Tensor input = here(at::rand({4})).requires_grad_();
  checkpoint(
      [&](const at::Tensor& x) {
        seen.push_back(is_recomputing());
        return x.sin();
      },
      input)
      .sum()
      .backward();
  CHECK(seen == std::vector{false, true});
  CHECK(!is_recomputing());
}

TEST_CASE("Recompute: segments of a Sequential") {
  torch::nn::Sequential net;
  for (int i = 0; i < 7; ++i) {
    net->push_back(torch::nn::Linear(16, 16));
    net->push_back(torch::nn::Tanh());
  }
  placed(net);
  const Outcome expected = outcome(*net, [&](const at::Tensor& x) { return net->forward(x); });
  for (const int64_t segments : {1, 2, 3, 5, 14}) {
    CHECK(equal(outcome(*net, [&](const at::Tensor& x) { return checkpoint_sequential(net, segments, x); }), expected));
  }
  CHECK_THROWS_AS(checkpoint_sequential(net, 0, here(at::rand({1, 16}))), std::invalid_argument);
  CHECK_THROWS_AS(checkpoint_sequential(net, 15, here(at::rand({1, 16}))), std::invalid_argument);
}

TEST_CASE("Recompute: two threads run regions of their own at once") {
  std::array<bool, 2> is_equal{};
  std::vector<std::thread> threads;
  for (size_t i = 0; i < 2; ++i) {
    threads.emplace_back([&, i] {
      const at::Tensor input = here(at::full({64}, 0.1 * static_cast<double>(i + 1))).requires_grad_();
      const auto function = [](const at::Tensor& x) { return x.sin().exp().tanh(); };
      is_equal[i] = true;
      for (int round = 0; round < 50; ++round) {
        const auto with = torch::autograd::grad({checkpoint(function, input).sum()}, {input})[0];
        const auto without = torch::autograd::grad({function(input).sum()}, {input})[0];
        is_equal[i] = is_equal[i] && at::equal(with, without);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(is_equal == std::array{true, true});
}

TEST_CASE("Recompute: two threads go backward through one region at once") {
  const at::Tensor a = here(at::rand({64})).requires_grad_();
  const at::Tensor b = here(at::rand({64})).requires_grad_();
  for (int round = 0; round < 30; ++round) {
    const auto [x, y] =
        checkpoint([](const at::Tensor& left,
                      const at::Tensor& right) { return std::make_tuple(left.sin().exp(), right.exp().sin()); },
                   a, b);
    at::Tensor of_a;
    at::Tensor of_b;
    std::thread other([&, root = x] { of_a = torch::autograd::grad({root.sum()}, {a})[0]; });
    of_b = torch::autograd::grad({y.sum()}, {b})[0];
    other.join();
    REQUIRE(at::equal(of_a, a.detach().sin().exp() * a.detach().cos()));
    REQUIRE(at::equal(of_b, b.detach().exp().cos() * b.detach().exp()));
  }
}

TEST_CASE("Recompute: save_on_cpu keeps the bits, alone and around a region") {
  auto net = block();
  const Function plain = [&](const at::Tensor& x) { return net->forward(x); };
  const Outcome expected = outcome(*net, plain);
  CHECK(equal(outcome(*net,
                      [&](const at::Tensor& x) {
                        const save_on_cpu scope;
                        return plain(x);
                      }),
              expected));
  CHECK(equal(outcome(*net,
                      [&](const at::Tensor& x) {
                        const save_on_cpu scope;
                        return checkpoint(plain, x.mul(1));
                      }),
              expected));
}

TEST_CASE("Recompute: scopes of save_on_cpu may end in any order") {
  const at::Tensor input = here(at::rand({4})).requires_grad_();
  const auto gradient = [&] { return torch::autograd::grad({(input.sin() * input).sum()}, {input})[0]; };
  const at::Tensor expected = gradient();
  auto first = std::make_unique<save_on_cpu>();
  auto second = std::make_unique<save_on_cpu>();
  auto third = std::make_unique<save_on_cpu>();
  first.reset();
  CHECK(at::equal(gradient(), expected));
  third.reset();
  CHECK(at::equal(gradient(), expected));
  second.reset();
  CHECK(at::equal(gradient(), expected));
}

}  // namespace
}  // namespace ddp::regions

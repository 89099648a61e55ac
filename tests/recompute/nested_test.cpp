// Regions in regions, and a backward inside a region.
#include <catch2/catch_test_macros.hpp>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include "ddprun/recompute/recompute.h"
#include "tests/recompute/regions.h"

namespace ddp::regions {
namespace {

TEST_CASE("Nested regions: three levels have the bits of none") {
  auto net = block();
  auto other = block();
  torch::nn::ModuleList both(net, other);
  const Function plain = [&](const at::Tensor& x) { return other->forward(net->forward(x).sin()).cos(); };
  const Outcome expected = outcome(*both, plain);
  for (const bool early_stop : {true, false}) {
    const RecomputeOptions options{.early_stop = early_stop};
    const Function inner = [&](const at::Tensor& x) { return checkpoint(options, net, x); };
    const Function middle = [&](const at::Tensor& x) {
      return checkpoint(
          options, [&](const at::Tensor& y) { return other->forward(inner(y).sin()); }, x);
    };
    const Function outer = [&](const at::Tensor& x) {
      return checkpoint(
          options, [&](const at::Tensor& y) { return middle(y).cos(); }, x);
    };
    CHECK(equal(outcome(*both, outer), expected));
  }
}

TEST_CASE("Nested regions: the same module in two regions, and one region's result in two others") {
  auto net = block();
  const Function plain = [&](const at::Tensor& x) {
    const at::Tensor y = net->forward(x);
    return net->forward(y) + net->forward(y.sin());
  };
  const Function regions = [&](const at::Tensor& x) {
    const at::Tensor y = checkpoint(net, x);
    return checkpoint(net, y) + checkpoint([&](const at::Tensor& z) { return net->forward(z.sin()); }, y);
  };
  CHECK(equal(outcome(*net, regions), outcome(*net, plain)));
}

TEST_CASE("Nested regions: a backward inside a region, with and without retain_graph") {
  for (const bool retains : {true, false}) {
    for (const bool early_stop : {true, false}) {
      const auto function = [retains](const at::Tensor& x) {
        const at::Tensor z = x.sin().cos();
        const at::Tensor gradient = torch::autograd::grad({z.sum()}, {x}, {}, retains)[0];
        return x.cos() * gradient + (retains ? z : x);
      };
      const at::Tensor input = here(at::linspace(0, 1, 6, at::kDouble)).requires_grad_();
      const auto expected = torch::autograd::grad({function(input).sum()}, {input})[0];
      const at::Tensor y = checkpoint({.early_stop = early_stop}, function, input);
      CHECK(at::equal(torch::autograd::grad({y.sum()}, {input})[0], expected));
    }
  }
}

TEST_CASE("Nested regions: a gradient in a region that is a part of its result") {
  const auto function = [](const at::Tensor& x) {
    const at::Tensor z = x.sin() * x;
    return z * torch::autograd::grad({(z * z).sum()}, {x}, {}, std::nullopt, /*create_graph=*/true)[0].tanh();
  };
  const at::Tensor input = here(at::linspace(0, 1, 6, at::kDouble)).requires_grad_();
  const auto expected = torch::autograd::grad({function(input).sum()}, {input})[0];
  for (const bool early_stop : {true, false}) {
    const at::Tensor y = checkpoint({.early_stop = early_stop}, function, input);
    CHECK(at::equal(torch::autograd::grad({y.sum()}, {input}, {}, /*retain_graph=*/true)[0], expected));
    CHECK(at::equal(torch::autograd::grad({y.sum()}, {input})[0], expected));
  }
}

// In both runs: a gradient of the region that ends at its inputs would be another one.
TEST_CASE("Nested regions: a gradient in a region that leads out of it through its inputs") {
  const at::Tensor input = here(at::rand({4, 4})).requires_grad_();
  const at::Tensor weight = here(at::rand({4, 4})).requires_grad_();
  const auto slope = [](const at::Tensor& of, const at::Tensor& to) {
    return torch::autograd::grad({of.sum()}, {to}, {}, std::nullopt, /*create_graph=*/true)[0];
  };
  using Region = std::function<at::Tensor(const at::Tensor&, const at::Tensor&)>;
  const Region to_an_input = [&](const at::Tensor& x, const at::Tensor& y) {
    return slope((x * y).sin(), x) * y.cos();
  };
  const Region to_a_parameter = [&](const at::Tensor& x, const at::Tensor& y) {
    return slope(x.mm(weight) * y, weight).mm(x).sin();
  };
  for (const Region& region : {to_an_input, to_a_parameter}) {
    const auto gradients = [&](bool in_region) {
      const at::Tensor x = input.exp();
      const at::Tensor y = x.mm(weight).sin();
      const at::Tensor result = in_region ? checkpoint(region, x, y) : region(x, y);
      return torch::autograd::grad({result.sum()}, {input, weight});
    };
    const auto expected = gradients(false);
    const auto got = gradients(true);
    for (size_t i = 0; i < expected.size(); ++i) CHECK(at::equal(got[i], expected[i]));
  }
}

TEST_CASE("Nested regions: a part of the graph first, then the rest") {
  const at::Tensor a = here(at::rand({4})).requires_grad_();
  const at::Tensor b = here(at::rand({4})).requires_grad_();
  const auto [x, y] = checkpoint(
      [](const at::Tensor& left, const at::Tensor& right) { return std::make_tuple(left.sin(), right.exp()); }, a, b);
  CHECK(at::equal(torch::autograd::grad({x.sum()}, {a})[0], a.detach().cos()));
  CHECK(at::equal(torch::autograd::grad({y.sum()}, {b})[0], b.detach().exp()));
}

// LibTorch runs backwards in backwards in threads of their own from a depth of 60 on.
at::Tensor deep(const at::Tensor& x, int depth) {
  struct Deeper : torch::autograd::Function<Deeper> {
    static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& input, int64_t left) {
      context->saved_data["left"] = left;
      return input * 2;
    }
    static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                   const torch::autograd::variable_list& gradients) {
      const auto left = context->saved_data["left"].toInt();
      if (left > 0) {
        const at::AutoGradMode on(true);
        const at::Tensor input = here(at::ones({1})).requires_grad_();
        deep(checkpoint([](const at::Tensor& y) { return y.sin(); }, input), static_cast<int>(left) - 1)
            .sum()
            .backward();
      }
      return {gradients[0] * 2, {}};
    }
  };
  return Deeper::apply(x, depth);
}

TEST_CASE("Nested regions: backwards in backwards, deeper than one thread takes") {
  // LibTorch's own engine first: another one has to start its threads itself.
  const at::Tensor plain = here(at::ones({1})).requires_grad_();
  plain.sin().sum().backward();
  const at::Tensor input = here(at::ones({1})).requires_grad_();
  deep(input, 150).sum().backward();
  CHECK(input.grad().item<float>() == 2);
}

}  // namespace
}  // namespace ddp::regions

// Custom autograd functions (torch::autograd::Function) in regions, and regions in these.
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "ddprun/recompute/recompute.h"
#include "ddprun/recompute/save_on_cpu.h"
#include "tests/recompute/regions.h"
#include "tests/support/catch.h"

namespace ddp::regions {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl>;

// Saves an input, what lies between, and its output.
struct Cube : torch::autograd::Function<Cube> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, double factor) {
    const at::Tensor square = x * x;
    at::Tensor cube = square * x * factor;
    context->save_for_backward({x, square, cube});
    context->saved_data["factor"] = factor;
    return cube;
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const double factor = context->saved_data["factor"].toDouble();
    return {gradients[0] * (saved[0] * saved[0] + saved[1]) * 1.5 * factor + saved[2] * 0.125, at::Tensor()};
  }
};

// Two outputs and a mask, some of whose gradients may be undefined.
struct SineAndCosine : torch::autograd::Function<SineAndCosine> {
  static variable_list forward(AutogradContext* context, const at::Tensor& x) {
    context->set_materialize_grads(false);
    const at::Tensor sine = x.sin();
    const at::Tensor cosine = x.cos();
    const at::Tensor mask = x > 0;
    context->mark_non_differentiable({mask});
    context->save_for_backward({sine, mask, cosine, x});
    return {sine, mask, cosine};
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    at::Tensor result = at::zeros_like(saved[3]);
    if (gradients[0].defined()) result = result + gradients[0] * saved[2];
    if (gradients[2].defined()) result = result - gradients[2] * saved[0];
    return {result * saved[1]};
  }
};

// Changes its input in place and returns it.
struct DoubleInPlace : torch::autograd::Function<DoubleInPlace> {
  static at::Tensor forward(AutogradContext* context, at::Tensor x) {
    x.mul_(2);
    context->mark_dirty({x});
    context->save_for_backward({x});
    return x;
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    return {gradients[0] * 2 + context->get_saved_variables()[0] * 0.5};
  }
};

// Its backward has a region and a backward of its own.
struct ExpByRegion : torch::autograd::Function<ExpByRegion> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x) {
    context->save_for_backward({x});
    return x.exp();
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const at::AutoGradMode with_gradients(true);
    const at::Tensor x = context->get_saved_variables()[0].detach().requires_grad_();
    const at::Tensor y = checkpoint([](const at::Tensor& input) { return input.exp(); }, x);
    return {torch::autograd::grad({y}, {x}, {gradients[0]})[0]};
  }
};

const std::vector<std::pair<const char*, Function>>& functions_with_custom_parts() {
  static const std::vector<std::pair<const char*, Function>> all{
      {"output saved last", [](const at::Tensor& x) { return Cube::apply(x.sin(), 0.5) + Cube::apply(x, 2.0); }},
      {"several outputs",
       [](const at::Tensor& x) {
         const variable_list parts = SineAndCosine::apply(x.exp());
         return parts[0] * parts[1].to(at::kFloat) + parts[2];
       }},
      {"an output without gradient", [](const at::Tensor& x) { return SineAndCosine::apply(x.exp())[2]; }},
      {"in place", [](const at::Tensor& x) { return DoubleInPlace::apply(x.sin()); }},
      {"a region in the backward", [](const at::Tensor& x) { return ExpByRegion::apply(x.sin()).sin(); }},
  };
  return all;
}

std::vector<at::Tensor> of_two_backwards(const Function& function) {
  torch::manual_seed(3);
  const at::Tensor x = here(at::rand({4, 6}) - 0.4).requires_grad_();
  const at::Tensor y = function(x);
  return {y.detach(), torch::autograd::grad({y.pow(2).sum()}, {x}, {}, /*retain_graph=*/true)[0],
          torch::autograd::grad({y.sin().sum()}, {x})[0]};
}

TEST_CASE("Custom functions: regions have the bits of the plain forward") {
  for (const auto& [name, function] : functions_with_custom_parts()) {
    const std::vector<at::Tensor> expected = of_two_backwards(function);
    const auto expect_the_bits = [&, name = name](const Function& other) {
      const std::vector<at::Tensor> actual = of_two_backwards(other);
      INFO(name);
      for (size_t i = 0; i < expected.size(); ++i) CHECK(at::equal(actual[i], expected[i]));
    };
    for (const bool early_stop : {true, false}) {
      const RecomputeOptions options{.early_stop = early_stop};
      expect_the_bits([&, step = function](const at::Tensor& x) { return checkpoint(options, step, x); });
      expect_the_bits([&, step = function](const at::Tensor& x) {
        const auto inner = [=](const at::Tensor& y) { return checkpoint(options, step, y * 1); };
        return checkpoint(options, inner, x);
      });
    }
    expect_the_bits([step = function](const at::Tensor& x) {
      const save_on_cpu scope;
      return checkpoint(step, x);
    });
  }
}

// While it saves tensors, a custom function holds its outputs, and these its node.
TEST_CASE("Custom functions: a second run that ends in one leaves nothing") {
  const std::vector<Function> all{[](const at::Tensor& x) { return Cube::apply(x, 0.5); },
                                  [](const at::Tensor& x) { return SineAndCosine::apply(x)[0]; },
                                  [](const at::Tensor& x) { return DoubleInPlace::apply(x); }};
  for (size_t i = 0; i < all.size(); ++i) {
    std::optional<WeakTensor> saved;  // by the custom function in the second run
    const auto step = [&](const at::Tensor& x) {
      const at::Tensor between = x * 1;
      if (is_recomputing()) saved.emplace(between.getIntrusivePtr());
      return all[i](between);
    };
    const at::Tensor input = here(at::rand({4, 6})).requires_grad_();
    checkpoint(step, input).sum().backward();
    INFO("function " << i);
    REQUIRE(saved.has_value());
    CHECK(saved->expired());
  }
}

// The program's graph leads through what a custom function outside of the region returned.
TEST_CASE("Custom functions: a second run leaves the outputs of one before the region alone") {
  for (const bool is_captured : {false, true}) {
    INFO("captured " << is_captured);
    const at::Tensor x = here(at::rand({4, 6})).requires_grad_();
    const at::Tensor y = Cube::apply(x, 0.5);
    const auto result = [&](bool in_region) {
      const auto square_of_sine = [&](const at::Tensor& input) {
        return (is_captured ? y * input : input).sin().pow(2);
      };
      const at::Tensor input = is_captured ? x : y;
      return (in_region ? checkpoint(square_of_sine, input) : square_of_sine(input)).sum();
    };
    const at::Tensor loss = result(/*in_region=*/true);
    const at::Tensor expected = torch::autograd::grad({result(/*in_region=*/false)}, {x}, {}, true)[0];
    CHECK(at::equal(torch::autograd::grad({loss}, {x}, {}, /*retain_graph=*/true)[0], expected));
    CHECK(y.grad_fn() != nullptr);
    CHECK(at::equal(torch::autograd::grad({loss}, {x}, {}, /*retain_graph=*/true)[0], expected));
    CHECK(y.requires_grad());
  }
}

TEST_CASE("Custom functions: one that changes the region's input in place is refused") {
  const at::Tensor x = here(at::rand({4})).requires_grad_();
  CHECK_THROWS_WITH(checkpoint([](const at::Tensor& input) { return DoubleInPlace::apply(input).exp(); }, x * 1),
                    Catch::Matchers::ContainsSubstring("changed its input tensor 0"));
}

}  // namespace
}  // namespace ddp::regions

// Hooks behind parameters' gradients, and the marks of wrappers that are made of them.
#include "ddprun/detail/comm/gradient_hook.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <ddprun/detail/comm/wrapped_parameters.h>

#include "tests/support/catch.h"
#include "tests/support/errors.h"

namespace ddp {
namespace {

using Catch::Matchers::ContainsSubstring;
using test::error_of;

at::Tensor parameter(at::IntArrayRef shape = {2}) {
  return at::ones(shape).requires_grad_();
}

void backward(const at::Tensor& tensor, float factor = 2) {
  tensor.mul(factor).sum().backward();
}

// Other memory, as by torch::load(), and with it an accumulator that knows no hooks.
void replace_memory(at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  tensor.set_(at::ones(tensor.sizes()));
}

TEST_CASE("GradientHook: is called once after each accumulation, when the gradient is complete") {
  const at::Tensor weight = parameter();
  std::vector<float> seen;
  const GradientHook hook(weight, [&] { seen.push_back(weight.grad()[0].item<float>()); });
  backward(weight);
  CHECK(seen == std::vector<float>{2});
  UNSCOPED_INFO("of a parameter that is used twice there is one gradient");
  (weight.mul(3) + weight.mul(4)).sum().backward();
  CHECK(seen == std::vector<float>{2, 9});
  backward(parameter());
  CHECK(seen.size() == 2);
}

TEST_CASE("GradientHook: takes parameters of any shape, also without dimensions or elements") {
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{}, {0}, {1}, {3, 0, 2}, {2, 2}}) {
    INFO("shape " << at::IntArrayRef(shape));
    const at::Tensor weight = parameter(shape);
    int calls = 0;
    const GradientHook hook(weight, [&] { ++calls; });
    backward(weight);
    CHECK(calls == 1);
  }
}

TEST_CASE("GradientHook: nothing is called after its end, nor by one that was moved from") {
  const at::Tensor weight = parameter();
  int calls = 0;
  {
    std::vector<GradientHook> hooks;
    for (int i = 0; i < 9; ++i) hooks.emplace_back(weight, [&] { ++calls; });  // moves those before
    backward(weight);
    CHECK(calls == 9);
    hooks.pop_back();
    GradientHook first = std::move(hooks.front());
    hooks.front().keep();  // which has nothing to keep
    backward(weight);
    CHECK(calls == 9 + 8);
  }
  backward(weight);
  CHECK(calls == 9 + 8);
}

TEST_CASE("GradientHook: what it throws reaches the caller of backward, and later backwards work") {
  const at::Tensor weight = parameter();
  bool throws = true;
  const GradientHook hook(weight, [&] {
    if (throws) throw std::domain_error("not this gradient");
  });
  CHECK_THAT(error_of<std::exception>([&] { backward(weight); }), ContainsSubstring("not this gradient"));
  throws = false;
  backward(weight);
  CHECK(weight.grad().defined());
}

TEST_CASE("GradientHook: other memory takes it away, and keep brings it back as often as it is gone") {
  at::Tensor weight = parameter();
  int calls = 0;
  GradientHook hook(weight, [&] { ++calls; });
  for (int round = 1; round <= 3; ++round) {
    replace_memory(weight);
    if (round == 3) {
      backward(weight);
      CHECK(calls == 2);
    }
    hook.keep();
    hook.keep();  // twice is once
    backward(weight);
    CHECK(calls == round);
  }
}

TEST_CASE("GradientHook: refuses what has no gradient of its own") {
  const std::vector<std::pair<at::Tensor, std::string>> cases{
      {at::ones({2}), "a tensor that does not require gradients"},
      {parameter().mul(2), "the result of an operation"},
      {at::Tensor(), "an undefined tensor"}};
  for (const auto& [tensor, got] : cases) {
    const at::Tensor& refused = tensor;
    const auto expected = ContainsSubstring("expected a leaf that requires gradients, got " + got);
    CHECK_THAT(error_of<std::invalid_argument>([&] { GradientHook(refused, [] {}); }), expected);
    CHECK_THAT(error_of<std::invalid_argument>([&] { WrappedParameters({parameter(), refused}); }), expected);
  }
}

TEST_CASE("WrappedParameters: tells each accumulation with the parameter's index") {
  const std::vector<at::Tensor> parameters{parameter(), parameter({}), parameter({0}), parameter({2, 3})};
  std::vector<size_t> told;
  const WrappedParameters wrapped(parameters,
                                  [&](size_t index, const at::Tensor& /*incoming*/) { told.push_back(index); });
  (parameters[3].sum() + parameters[1]).backward();
  std::ranges::sort(told);
  CHECK(told == std::vector<size_t>{1, 3});
  backward(parameters[2]);
  CHECK(told.back() == 2);
}

TEST_CASE("WrappedParameters: marks are of a kind, and go with their owner") {
  const at::Tensor weight = parameter();
  const at::Tensor other = parameter();
  const auto is_ddp = [&] { return is_marked(weight, MarkKind::kDistributedDataParallel); };
  const auto is_amp = [&] { return is_marked(weight, MarkKind::kMixedPrecision); };
  CHECK_FALSE((is_ddp() || is_amp()));
  {
    std::optional<WrappedParameters> ddp(std::in_place, std::vector{weight});
    CHECK((is_ddp() && !is_amp()));
    {
      const WrappedParameters amp({weight}, nullptr, MarkKind::kMixedPrecision);
      CHECK((is_ddp() && is_amp()));
      ddp.reset();
      CHECK((!is_ddp() && is_amp()));
    }
    CHECK_FALSE((is_ddp() || is_amp()));
    ddp.emplace(std::vector{weight});
    const WrappedParameters moved = std::move(*ddp);
    ddp.reset();
    CHECK(is_ddp());
  }
  CHECK_FALSE((is_ddp() || is_amp()));
  CHECK_FALSE(is_marked(other, MarkKind::kDistributedDataParallel));
}

TEST_CASE("WrappedParameters: nothing that cannot have a mark has one") {
  CHECK_FALSE(is_marked(at::Tensor(), MarkKind::kDistributedDataParallel));
  CHECK_FALSE(is_marked(at::ones({2}), MarkKind::kDistributedDataParallel));
  CHECK_FALSE(is_marked(parameter().mul(2), MarkKind::kMixedPrecision));
  const at::Tensor weight = parameter();
  const GradientHook plain(weight, [] {});
  CHECK_FALSE(is_marked(weight, MarkKind::kDistributedDataParallel));
  const WrappedParameters nobody({});
}

TEST_CASE("WrappedParameters: a mark that other memory takes away comes back with all hooks of the parameter") {
  at::Tensor weight = parameter();
  int calls = 0;
  const GradientHook earlier(weight, [&] { ++calls; });
  WrappedParameters wrapped({weight}, [&](size_t, const at::Tensor&) { calls += 10; });
  replace_memory(weight);
  CHECK_FALSE(is_marked(weight, MarkKind::kDistributedDataParallel));
  wrapped.keep();
  CHECK(is_marked(weight, MarkKind::kDistributedDataParallel));
  backward(weight);
  CHECK(calls == 11);
}

TEST_CASE("WrappedParameters: a module is wrapped if a parameter anywhere below it is") {
  struct Outer final : torch::nn::Module {
    torch::nn::Linear inner = register_module("inner", torch::nn::Linear(2, 2));
  } outer;
  CHECK_FALSE(is_wrapped(outer));
  require_unwrapped(outer, "convert_sync_batchnorm()");
  const WrappedParameters wrapped({outer.inner->bias});
  CHECK(is_wrapped(outer));
  CHECK(is_wrapped(*outer.inner));
  CHECK_THAT(error_of<std::logic_error>([&] { require_unwrapped(outer, "convert_sync_batchnorm()"); }),
             ContainsSubstring("convert_sync_batchnorm(): the model is already wrapped in DistributedDataParallel") &&
                 ContainsSubstring("The right order"));
  UNSCOPED_INFO("mixed precision is not a wrapper");
  torch::nn::Linear other(1, 1);
  const WrappedParameters amp({other->weight}, nullptr, MarkKind::kMixedPrecision);
  require_unwrapped(*other, "DistributedDataParallel");
}

}  // namespace
}  // namespace ddp

// What differs between the two runs of a region is an error, which names it; afterwards the next step works.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/engine.h>

#include <memory>
#include <optional>
#include <stdexcept>

#include "ddprun/recompute/recompute.h"
#include "tests/recompute/regions.h"

namespace ddp::regions {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

TEST_CASE("Recompute errors: an input that the region changes in place is refused in the forward") {
  const at::Tensor input = here(at::rand({4})).requires_grad_();
  std::optional<c10::weak_intrusive_ptr<c10::TensorImpl>> changed;
  {
    const at::Tensor twice = input.mul(2);
    changed.emplace(twice.getIntrusivePtr());
    CHECK_THROWS_WITH(checkpoint([](const at::Tensor& x) { return x.relu_().sin(); }, twice),
                      ContainsSubstring("changed its input tensor 0"));
  }
  CHECK(changed->expired());
  CHECK(torch::autograd::grad({checkpoint([](const at::Tensor& x) { return x.sin(); }, input).sum()}, {input})[0]
            .defined());
}

TEST_CASE("Recompute errors: an input that was changed after the forward is refused in the backward") {
  const at::Tensor input = here(at::rand({4})).requires_grad_();
  const at::Tensor twice = input * 2;
  const at::Tensor y = checkpoint([](const at::Tensor& x) { return x.sin(); }, twice);
  twice.detach().zero_();
  CHECK_THROWS_WITH(y.sum().backward(), ContainsSubstring("an input of the region was changed in place"));
}

TEST_CASE("Recompute errors: a parameter that was changed between forward and backward is refused") {
  const at::Tensor input = here(at::rand({4})).requires_grad_();
  const at::Tensor weight = here(at::rand({4})).requires_grad_();
  const at::Tensor y = checkpoint([&](const at::Tensor& x) { return x * weight; }, input);
  {
    const at::NoGradGuard no_gradients;
    weight.add_(1);
  }
  CHECK_THROWS_WITH(y.sum().backward(), ContainsSubstring("changed in place between the forward and the backward"));
}

TEST_CASE("Recompute errors: a parameter that was frozen or thawed between forward and backward is refused") {
  for (const bool is_trained : {true, false}) {
    const at::Tensor input = here(at::rand({4})).requires_grad_();
    at::Tensor weight = here(at::rand({4})).set_requires_grad(is_trained);
    const at::Tensor y = checkpoint([&](const at::Tensor& x) { return (x * weight).sin() * weight; }, input);
    weight.set_requires_grad(!is_trained);
    CHECK_THROWS_WITH(y.sum().backward(), ContainsSubstring("saved tensor 0 (Float [4] on c") &&
                                              ContainsSubstring("Freeze or thaw parameters after the backward"));
  }
}

TEST_CASE("Recompute errors: another operator, shape, or number of tensors") {
  const at::Tensor input = here(at::rand({4, 4})).requires_grad_();
  int run = 0;
  const auto backward = [&](const RecomputeOptions& options, const auto& first, const auto& second) {
    run = 0;
    checkpoint(
        options, [&](const at::Tensor& x) { return ++run == 1 ? first(x) : second(x); }, input)
        .sum()
        .backward();
  };
  const auto sine = [](const at::Tensor& x) { return x.sin().exp(); };
  const auto half = [](const at::Tensor& x) { return x.narrow(0, 0, 2).sin().exp(); };
  const auto longer = [](const at::Tensor& x) { return x.sin().exp().tanh(); };
  CHECK_THROWS_AS(backward({}, sine, half), RecomputeError);
  CHECK_THROWS_WITH(backward({}, sine, half), ContainsSubstring("saved tensor 0 was Float [4, 4] on c") &&
                                                  ContainsSubstring("in the forward and is Float [2, 4] on c") &&
                                                  ContainsSubstring("the recomputation was in aten::sin."));
  CHECK_THROWS_WITH(backward({.debug = true}, sine, half), ContainsSubstring("aten::narrow"));
  CHECK_THROWS_WITH(backward({}, longer, sine), ContainsSubstring("saved 3 tensors in the forward and 2") &&
                                                    ContainsSubstring("the recomputation was in aten::exp."));
  CHECK_THROWS_WITH(backward({.early_stop = false}, sine, longer), ContainsSubstring("and more in the recomputation"));
  CHECK_NOTHROW(backward({}, sine, longer));  // ends before the difference
  CHECK_NOTHROW(backward({.determinism_check = DeterminismCheck::kNone}, sine, sine));
}

TEST_CASE("Recompute errors: a saved tensor that the region changes in place, as in a plain backward") {
  const at::Tensor input = here(at::rand({4})).requires_grad_();
  const auto function = [](const at::Tensor& x) {
    at::Tensor y = x.exp();  // exp saves its result
    y.add_(1);
    return y.sin();
  };
  CHECK_THROWS(function(input).sum().backward());
  CHECK_THROWS_WITH(checkpoint(function, input).sum().backward(),
                    ContainsSubstring("in place after autograd had saved it"));
}

TEST_CASE("Recompute errors: a function that throws, first or again, leaves nothing") {
  const at::Tensor input = here(at::rand({4})).requires_grad_();
  const auto witness = std::make_shared<int>(0);
  std::weak_ptr<int> alive = witness;
  int run = 0;
  for (const int fails_in : {1, 2}) {
    run = 0;
    const auto step = [&, held = std::make_shared<std::shared_ptr<int>>(witness)] {
      const at::Tensor y = checkpoint(
          [&run, fails_in, kept = *held](const at::Tensor& x) {
            at::Tensor z = x.sin();
            if (++run == fails_in) throw std::runtime_error("the region's own error");
            return z.exp();
          },
          input);
      y.sum().backward();
    };
    CHECK_THROWS_WITH(step(), ContainsSubstring("the region's own error"));
    CHECK(!is_recomputing());
    const at::Tensor y = checkpoint([](const at::Tensor& x) { return x.sin(); }, input);
    CHECK(at::equal(torch::autograd::grad({y.sum()}, {input})[0], input.detach().cos()));
  }
  CHECK(witness.use_count() == 1);
}

// What Python's torch installs when it is imported.
class OtherEngine final : public torch::autograd::Engine {
 public:
  ~OtherEngine() override { stop(); }
  static torch::autograd::Engine& instance() {
    static OtherEngine engine;
    return engine;
  }
};

TEST_CASE("Recompute errors: a process with another autograd engine is told what to use") {
  static torch::autograd::Engine* const before = &torch::autograd::Engine::get_default_engine();
  torch::autograd::set_default_engine_stub(&OtherEngine::instance);
  const at::Tensor input = here(at::rand({4})).requires_grad_();
  CHECK_THROWS_WITH(checkpoint([](const at::Tensor& x) { return x.sin(); }, input),
                    ContainsSubstring("another autograd engine") && ContainsSubstring("torch.utils.checkpoint"));
  torch::autograd::set_default_engine_stub([]() -> torch::autograd::Engine& { return *before; });
  CHECK_NOTHROW(checkpoint([](const at::Tensor& x) { return x.sin(); }, input).sum().backward());
}

}  // namespace
}  // namespace ddp::regions

// keep(): a part of a region that does not run again.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "ddprun/recompute/recompute.h"
#include "tests/recompute/regions.h"

namespace ddp::regions {
namespace {

using Catch::Matchers::ContainsSubstring;

TEST_CASE("Keep: the part runs once, with the bits of the plain forward") {
  auto net = block();
  auto head = block();
  torch::nn::ModuleList both(net, head);
  const Outcome expected =
      outcome(*both, [&](const at::Tensor& x) { return head->forward(net->forward(x.sin()).cos()); });
  int kept_runs = 0;
  const Outcome got = outcome(*both, [&](const at::Tensor& x) {
    return checkpoint(
        [&](const at::Tensor& y) {
          const at::Tensor part = keep(
              [&](const at::Tensor& z) {
                ++kept_runs;
                return net->forward(z);
              },
              y.sin());
          return head->forward(part.cos());
        },
        x);
  });
  CHECK(kept_runs == 1);
  CHECK(equal(got, expected));
}

TEST_CASE("Keep: several results, a second backward, and a call outside a region") {
  const at::Tensor input = here(at::rand({4})).requires_grad_();
  const auto split = [](const at::Tensor& x) { return std::make_tuple(x.sin(), x.detach()); };
  const auto function = [&](const at::Tensor& x) {
    const auto [left, right] = keep(split, x);
    return (left * right).exp();
  };
  function(input).sum().backward();
  const at::Tensor once = input.grad().clone();
  input.mutable_grad() = at::Tensor();
  const at::Tensor y = checkpoint(function, input);
  y.sum().backward({}, /*retain_graph=*/true);
  CHECK(at::equal(input.grad(), once));
  y.sum().backward();
  CHECK(at::equal(input.grad(), once * 2));
}

TEST_CASE("Keep: a result that is changed in place is refused") {
  const at::Tensor input = here(at::rand({4})).requires_grad_();
  const at::Tensor y = checkpoint(
      [](const at::Tensor& x) { return keep([](const at::Tensor& z) { return z.mul(2); }, x).relu_().sin(); }, input);
  CHECK_THROWS_WITH(y.sum().backward(), ContainsSubstring("was changed in place after keep() had returned it"));
}

}  // namespace
}  // namespace ddp::regions

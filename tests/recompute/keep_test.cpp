// keep(): a part of a region that does not run again.
#include <ATen/core/List.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <torch/csrc/autograd/autograd.h>
#include <torch/ordered_dict.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

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

TEST_CASE("Keep: a backward in the region through a result is refused where its graph is not") {
  const at::Tensor input = here(at::rand({4})).requires_grad_();
  const auto square = [](const at::Tensor& z) { return z.sin() * z; };
  const auto through = [&](const at::Tensor& x) {
    const at::Tensor part = keep(square, x);
    return part * torch::autograd::grad({(part * part).sum()}, {x}, {}, std::nullopt, /*create_graph=*/true)[0];
  };
  CHECK_THROWS_WITH(checkpoint(through, input).sum().backward(),
                    ContainsSubstring("the region runs a backward through a result of keep()"));
  const auto to_the_result = [&](const at::Tensor& x) {
    const at::Tensor part = keep(square, x);
    return part * torch::autograd::grad({(part * part).sum()}, {part}, {}, std::nullopt, /*create_graph=*/true)[0];
  };
  const auto within = [&](const at::Tensor& x) {
    return x * keep(
                   [&](const at::Tensor& z) {
                     return torch::autograd::grad({square(z).sum()}, {z}, {}, std::nullopt, /*create_graph=*/true)[0];
                   },
                   x);
  };
  for (const Function& function : {Function(to_the_result), Function(within)}) {
    const at::Tensor expected = torch::autograd::grad({function(input).sum()}, {input})[0];
    CHECK(at::equal(torch::autograd::grad({checkpoint(function, input).sum()}, {input})[0], expected));
  }
}

// Only a part of such a gradient would be there in the recomputation: what the result of keep() has of it is missing.
TEST_CASE("Keep: a gradient of what the kept function has captured is refused, whatever else leads to it") {
  const at::Tensor input = here(at::rand({4, 4})).requires_grad_();
  const at::Tensor weight = here(at::rand({4, 4})).requires_grad_();
  const auto gradient = [](const at::Tensor& of, const at::Tensor& to, bool allow_unused = false) {
    return torch::autograd::grad({of.sum()}, {to}, {}, std::nullopt, /*create_graph=*/true, allow_unused)[0];
  };
  const auto kept = [&](const at::Tensor& x) { return keep([&](const at::Tensor& z) { return z.mm(weight); }, x); };
  const std::vector<Function> refused{
      [&](const at::Tensor& x) { return x * gradient(kept(x).sin(), weight); },
      [&](const at::Tensor& x) { return x * gradient(kept(x).sin().mm(weight), weight); },
      [&](const at::Tensor& x) {
        const at::Tensor captured = x.sin();
        const at::Tensor part = keep([&](const at::Tensor& z) { return z * captured; }, x);
        return x * gradient(part.sin(), captured);
      },
      [&](const at::Tensor& x) {
        const at::Tensor found = gradient(kept(x).sin(), weight, /*allow_unused=*/true);
        return found.defined() ? x * found : x * 2;
      },
      [&](const at::Tensor& x) {
        const at::Tensor part = kept(x);
        return checkpoint([&](const at::Tensor& y) { return y * gradient(part.sin().mm(weight), weight); }, x);
      }};
  for (const Function& function : refused) {
    CHECK_THROWS_WITH(checkpoint(function, input).sum().backward(),
                      ContainsSubstring("the region runs a backward through a result of keep()"));
  }
  const std::vector<Function> allowed{
      [&](const at::Tensor& x) { return x * gradient(kept(x).detach().mm(weight).sin(), weight); },
      [&](const at::Tensor& x) {
        const at::Tensor part = kept(x);
        return part * gradient(part.sin().mm(weight), part);
      },
      [&](const at::Tensor& x) { return kept(x) * gradient(x.sin().mm(weight), weight); }};
  for (const Function& function : allowed) {
    const at::Tensor expected = torch::autograd::grad({function(input).sum()}, {input})[0];
    CHECK(at::equal(torch::autograd::grad({checkpoint(function, input).sum()}, {input})[0], expected));
  }
}

TEST_CASE("Keep: another result in the recomputation is refused") {
  const at::Tensor input = here(at::rand({4})).requires_grad_();
  const auto function = [](const at::Tensor& x) {
    const auto sine = [](const at::Tensor& z) { return z.sin(); };
    if (!is_recomputing()) return keep(sine, x).exp();
    return keep([&](const at::Tensor& z) { return std::make_pair(sine(z), 1); }, x).first.exp();
  };
  CHECK_THROWS_WITH(checkpoint(function, input).sum().backward(),
                    ContainsSubstring("keep(): call 0 (counted from 0)") && ContainsSubstring("another type"));
}

struct Opaque {
  at::Tensor tensor;
};
struct Plain {
  int number;
};

// A result whose tensors are not found would hold the graph that holds the region: memory that nothing releases.
static_assert(detail::owns_its_tensors<std::tuple<at::Tensor, std::optional<at::Tensor>, int>>());
static_assert(detail::owns_its_tensors<std::map<std::string, std::vector<at::Tensor>>>());
static_assert(detail::owns_its_tensors<std::pair<torch::OrderedDict<std::string, at::Tensor>, Plain>>());
static_assert(detail::owns_its_tensors<std::variant<std::monostate, at::Tensor, std::string>>());
static_assert(!detail::owns_its_tensors<Opaque>());
static_assert(!detail::owns_its_tensors<std::optional<Opaque>>());
static_assert(!detail::owns_its_tensors<std::shared_ptr<at::Tensor>>());
static_assert(!detail::owns_its_tensors<std::vector<at::Tensor*>>());
static_assert(!detail::owns_its_tensors<c10::List<at::Tensor>>());

TEST_CASE("Keep: a result that is changed in place is refused") {
  const at::Tensor input = here(at::rand({4})).requires_grad_();
  const at::Tensor y = checkpoint(
      [](const at::Tensor& x) { return keep([](const at::Tensor& z) { return z.mul(2); }, x).relu_().sin(); }, input);
  CHECK_THROWS_WITH(y.sum().backward(), ContainsSubstring("was changed in place after keep() had returned it"));
}

}  // namespace
}  // namespace ddp::regions

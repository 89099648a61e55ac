// RecomputeOptions::must_save: operators whose results a region keeps.
#include <ATen/ops/native_dropout.h>
#include <ATen/record_function.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <torch/csrc/autograd/autograd.h>

#include <map>
#include <string>
#include <vector>

#include "ddprun/recompute/recompute.h"
#include "tests/recompute/regions.h"

namespace ddp::regions {
namespace {

using Catch::Matchers::ContainsSubstring;

// How often operators are computed, by their names, also inside of others. In one thread at a time.
class Computed {
 public:
  Computed() {
    counts().clear();
    handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback([](const at::RecordFunction& function) {
                                           ++counts()[function.name()];
                                           return std::unique_ptr<at::ObserverContext>();
                                         }).scopes({at::RecordScope::FUNCTION}));
  }
  ~Computed() { at::removeCallback(handle_); }
  static int of(const std::string& name) { return counts()[name]; }

 private:
  static std::map<std::string, int>& counts() {
    static std::map<std::string, int> all;
    return all;
  }
  at::CallbackHandle handle_;
};

at::Tensor through_region(const RecomputeOptions& options, const Function& function, const at::Tensor& x) {
  return checkpoint(options, function, x);
}

TEST_CASE("MustSave: regions have the bits of the plain forward, whichever operators they keep") {
  torch::nn::ModuleList net(placed(torch::nn::Linear(16, 16)), placed(torch::nn::Linear(16, 16)));
  const Function plain = [&](const at::Tensor& x) {
    const auto layer = [&](size_t i, const at::Tensor& y) { return net[i]->as<torch::nn::Linear>()->forward(y); };
    const at::Tensor y = layer(1, at::dropout(at::gelu(layer(0, x)), 0.5, true)).softmax(-1);
    return at::matmul(y, x.t()).add(y.sum()).cos().mm(x) * y.exp();
  };
  const Outcome expected = outcome(*net, plain);
  const std::vector<std::vector<std::string>> all{{"aten::addmm"},
                                                  {"aten::mm"},
                                                  {"aten::addmm", "aten::mm", "aten::gelu", "aten::_softmax"},
                                                  {"aten::cos", "aten::exp", "aten::mul.Tensor", "aten::add.Tensor"},
                                                  {"aten::sum"}};
  for (const auto& names : all) {
    for (const bool early_stop : {true, false}) {
      INFO(names.front() << (early_stop ? ", early stop" : ""));
      const RecomputeOptions options{.early_stop = early_stop, .must_save = names};
      CHECK(equal(outcome(*net, [&](const at::Tensor& x) { return through_region(options, plain, x); }), expected));
      const Function nested = [&](const at::Tensor& x) {
        return through_region(
            {.must_save = {"aten::mm"}}, [&](const at::Tensor& y) { return through_region(options, plain, y); }, x);
      };
      CHECK(equal(outcome(*net, nested), expected));
    }
  }
}

// What a kernel calls of other operators is not what the region keeps.
TEST_CASE("MustSave: the second run computes what is not kept, once for each backward") {
  const at::Tensor weight = here(at::rand({16, 16})).requires_grad_();
  const at::Tensor input = here(at::rand({8, 16})).requires_grad_();
  const Function function = [&](const at::Tensor& x) { return x.sin().mm(weight).cos().mm(weight).exp(); };
  function(input).sum().backward();
  const at::Tensor once = weight.grad().clone();
  weight.mutable_grad() = at::Tensor();
  const at::Tensor y = through_region({.early_stop = false, .must_save = {"aten::mm", "aten::exp"}}, function, input);
  const Computed computed;
  y.sum().backward({}, /*retain_graph=*/true);
  CHECK(at::equal(weight.grad(), once));
  CHECK(Computed::of("aten::sin") >= 1);
  y.sum().backward();
  CHECK(at::equal(weight.grad(), once * 2));
}

TEST_CASE("MustSave: what is not a pure operator's result") {
  const at::Tensor input = here(at::rand({4, 4})).requires_grad_();
  const auto run = [&](const std::string& name, const Function& function) {
    through_region({.early_stop = false, .must_save = {name}}, function, input).sum().backward();
  };
  const Function sine = [](const at::Tensor& x) { return x.sin(); };
  CHECK_THROWS_WITH(run("addmm", sine),
                    ContainsSubstring("must_save names 'addmm'") && ContainsSubstring("aten::addmm"));
  CHECK_THROWS_WITH(run("aten::no_such", sine), ContainsSubstring("LibTorch does not have"));
  CHECK_THROWS_WITH(run("aten::add", sine),
                    ContainsSubstring("name one or several of") && ContainsSubstring("aten::add.Tensor"));
  for (const char* name : {"aten::relu_", "aten::view", "aten::t", "aten::mm.out"}) {
    CHECK_THROWS_WITH(run(name, sine), ContainsSubstring("nothing to keep"));
  }
  for (const char* name : {"aten::linear", "aten::matmul", "aten::dropout"}) {
    CHECK_THROWS_WITH(run(name, sine), ContainsSubstring("consists of other operators"));
  }
  CHECK_THROWS_WITH(run("aten::sin", [](const at::Tensor& x) { return x.sin().mul_(2).cos(); }),
                    ContainsSubstring("a result of aten::sin") && ContainsSubstring("was changed in place"));
  CHECK_THROWS_WITH(
      run("aten::cos", [](const at::Tensor& x) { return is_recomputing() ? x.cos().cos().exp() : x.cos().exp(); }),
      ContainsSubstring("call 1 (counted from 0) of an operator in must_save was not there in the forward"));
}

// As LibTorch's linear() does for inputs of three dimensions: the product is changed through a tensor on its memory
// whose version counter is another one.
TEST_CASE("MustSave: a result that is changed through a view that autograd does not know is refused") {
  const at::Tensor input = here(at::rand({2, 3, 4})).requires_grad_();
  const at::Tensor weight = here(at::rand({4, 4})).requires_grad_();
  const Function function = [&](const at::Tensor& x) { return at::matmul(x, weight).add_(1).sin(); };
  CHECK_THROWS_WITH(through_region({.must_save = {"aten::mm"}}, function, input).sum().backward(),
                    ContainsSubstring("a result of aten::mm") && ContainsSubstring("was changed in place"));
  const Function untouched = [&](const at::Tensor& x) { return at::matmul(x, weight).add(1).sin(); };
  const at::Tensor expected = torch::autograd::grad({untouched(input).sum()}, {input})[0];
  const at::Tensor y = through_region({.must_save = {"aten::mm"}}, untouched, input);
  CHECK(at::equal(torch::autograd::grad({y.sum()}, {input})[0], expected));
}

TEST_CASE("MustSave: random operators that are kept leave the random numbers of the others") {
  const at::Tensor weight = here(at::rand({16, 16})).requires_grad_();
  torch::nn::ModuleList none;
  const Function function = [&](const at::Tensor& x) {
    const at::Tensor y = std::get<0>(at::native_dropout(x.mm(weight), 0.5, true));
    return at::dropout(y.sin(), 0.5, true).cos() * at::bernoulli(y.sigmoid().detach());
  };
  const Outcome expected = outcome(*none, function);
  for (const char* name : {"aten::native_dropout", "aten::bernoulli"}) {
    CHECK(equal(outcome(*none, [&](const at::Tensor& x) { return through_region({.must_save = {name}}, function, x); }),
                expected));
  }
}

}  // namespace
}  // namespace ddp::regions

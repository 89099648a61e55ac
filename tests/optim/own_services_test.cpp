// ddprun's optimizers as programs use them: with autograd, odd parameters, groups that are added, apex's levels,
// averaged models, Horovod's DistributedOptimizer and several threads.
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <torch/nn/modules/linear.h>

#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include <ddprun/amp/amp.h>
#include <ddprun/horovod/horovod.h>
#include <ddprun/optim/averaged_model.h>
#include <ddprun/optim/more_optimizers.h>
#include <ddprun/optim/optimizers.h>

#include "tests/optim/numbers.h"
#include "tests/support/catch.h"
#include "tests/support/placement.h"
#include "tests/support/rank_checks.h"
#include "tests/support/ranks.h"

namespace ddp::optim {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;
using test::expect_same_bits;
using test::here;
using test::numbers;

template <typename Class, typename ClassOptions>
struct ServedBy {
  using Optimizer = Class;
  using Options = ClassOptions;
};
template <typename Options>
using OwnServed = ServedBy<OwnOptimizer<Options>, Options>;

using Served =
    std::tuple<OwnServed<RMSpropOptions>, OwnServed<AdadeltaOptions>, OwnServed<AdamaxOptions>, OwnServed<NAdamOptions>,
               OwnServed<RAdamOptions>, OwnServed<ASGDOptions>, OwnServed<RpropOptions>, OwnServed<AdafactorOptions>,
               OwnServed<MuonOptions>, OwnServed<LambOptions>, OwnServed<LionOptions>, ServedBy<SGD, SGDOptions>,
               ServedBy<Adam, AdamOptions>, ServedBy<AdamW, AdamWOptions>, ServedBy<Adagrad, AdagradOptions>>;

template <typename Type>
constexpr bool kIsOwn = std::is_base_of_v<ListedOptions, typename Type::Options>;
template <typename Type>
constexpr bool kTakesNorms =
    std::is_same_v<typename Type::Options, LambOptions> || std::is_same_v<typename Type::Options, AdafactorOptions>;
template <typename Type>
constexpr bool kNeedsWhole = std::is_same_v<typename Type::Options, LambOptions>;  // by the norm of all gradients

void take_step_with(torch::optim::Optimizer& optimizer, const std::vector<at::Tensor>& parameters, int64_t salt) {
  for (size_t i = 0; i < parameters.size(); ++i) {
    parameters[i].mutable_grad() = numbers(parameters[i].sizes(), 100 * salt + static_cast<int64_t>(i));
  }
  optimizer.step();
}

}  // namespace

TEMPLATE_LIST_TEST_CASE("Services: autograd knows that a step has changed a parameter", "", Served) {
  if constexpr (!kIsOwn<TestType>) return;  // LibTorch's fused kernels do not say so, in Python neither
  const auto weight = numbers({4, 5}, 1).requires_grad_();
  typename TestType::Optimizer optimizer(std::vector{weight}, typename TestType::Options(0.1));
  const auto loss = (weight * weight).sum();
  const auto version = weight._version();
  take_step_with(optimizer, {weight}, 1);
  CHECK(weight._version() > version);
  CHECK_THROWS_WITH(loss.backward(), ContainsSubstring("has been modified by an inplace operation"));
}

TEMPLATE_LIST_TEST_CASE("Services: a group that is added later is stepped as if it were alone", "", Served) {
  if constexpr (kNeedsWhole<TestType>) return;
  const std::vector first = {numbers({4, 5}, 1).requires_grad_()}, second = {numbers({3, 2}, 2).requires_grad_()};
  const std::vector first_copy = {numbers({4, 5}, 1).requires_grad_()},
                    second_copy = {numbers({3, 2}, 2).requires_grad_()};
  using Options = typename TestType::Options;
  typename TestType::Optimizer optimizer(first, Options(0.1)), one(first_copy, Options(0.1)),
      other(second_copy, Options(0.05));
  take_step_with(optimizer, first, 1);
  take_step_with(one, first_copy, 1);
  optimizer.add_param_group(torch::optim::OptimizerParamGroup(second, std::make_unique<Options>(0.05)));
  for (int64_t step = 2; step < 6; ++step) {
    second[0].mutable_grad() = numbers({3, 2}, 10 * step);
    take_step_with(optimizer, first, step);
    take_step_with(one, first_copy, step);
    second_copy[0].mutable_grad() = numbers({3, 2}, 10 * step);
    other.step();
  }
  expect_same_bits({first[0], second[0]}, {first_copy[0], second_copy[0]});
}

TEMPLATE_LIST_TEST_CASE("Services: a slice of a tensor is stepped as its copy is, and nothing beside it", "", Served) {
  const auto whole = numbers({6, 8}, 1), before = whole.clone();
  const auto slice = whole.slice(1, 1, 7, 2).detach().requires_grad_();
  const auto copy = whole.slice(1, 1, 7, 2).contiguous().clone().requires_grad_();
  typename TestType::Optimizer optimizer(std::vector{slice}, typename TestType::Options(0.1)),
      other(std::vector{copy}, typename TestType::Options(0.1));
  for (int64_t step = 1; step < 5; ++step) {
    take_step_with(optimizer, {slice}, step);
    take_step_with(other, {copy}, step);
  }
  // The order of a norm's sum depends on the memory layout.
  if (kTakesNorms<TestType>) {
    test::expect_near({slice.detach()}, {copy.detach()});
  } else {
    expect_same_bits({slice}, {copy});
  }
  CHECK(whole.slice(1, 0, 8, 2).equal(before.slice(1, 0, 8, 2)));
}

TEMPLATE_LIST_TEST_CASE("Services: a parameter that is one number shown many times is refused, and nothing changes", "",
                        Served) {
  const auto fine = numbers({4, 5}, 1).requires_grad_(), row = numbers({1, 5}, 2);
  const auto expanded = row.expand({4, 5}).detach().requires_grad_();
  typename TestType::Optimizer optimizer(std::vector{fine, expanded}, typename TestType::Options(0.1));
  const auto fine_before = fine.detach().clone(), row_before = row.clone();
  CHECK_THROWS_MATCHES(take_step_with(optimizer, {fine, expanded}, 1), std::invalid_argument,
                       MessageMatches(ContainsSubstring("of shape [4, 5] has elements that share memory")));
  expect_same_bits({fine, row}, {fine_before, row_before});
}

TEMPLATE_LIST_TEST_CASE("Services: apex's levels step the masters, which the model follows", "", Served) {
  for (const char* level : {"O0", "O1", "O2", "O3"}) {
    INFO(level);
    auto net = test::placed(torch::nn::Linear(6, 5));
    net->weight.set_data(numbers({5, 6}, 1));
    const std::vector<at::Tensor> parameters = {net->weight};  // Muon takes matrices only
    net->bias.requires_grad_(false);
    typename TestType::Optimizer optimizer(parameters, typename TestType::Options(0.01));
    amp::Amp amp = amp::initialize(net, optimizer, {.opt_level = level, .dtype = at::kBFloat16});
    const bool is_exact = std::string(level) != "O3";  // a step may be too small for bfloat16
    for (int64_t step = 0; step < 4; ++step) {
      const auto x = numbers({3, 6}, 20 + step).to(net->weight.scalar_type());
      const auto before = optimizer.param_groups()[0].params()[0].detach().clone();
      amp.scale_loss(net->forward(x).to(at::kFloat).pow(2).sum(), optimizer).backward();
      amp.step(optimizer);
      optimizer.zero_grad();
      const auto own = optimizer.param_groups()[0].params()[0].detach();
      INFO("step " << step);
      if (is_exact) CHECK_FALSE(own.equal(before));
      CHECK(net->weight.detach().equal(own.to(net->weight.scalar_type())));
    }
  }
}

TEMPLATE_LIST_TEST_CASE("Services: an averaged model follows", "", Served) {
  auto net = test::placed(torch::nn::Linear(6, 5));
  typename TestType::Optimizer optimizer(std::vector{net->weight}, typename TestType::Options(0.1));
  AveragedModel average(net, {.avg_fn = get_ema_avg_fn(0.5)});
  at::Tensor expected;
  for (int64_t step = 1; step < 5; ++step) {
    take_step_with(optimizer, {net->weight}, step);
    average->update_parameters(net);
    const auto weight = net->weight.detach();
    expected = step == 1 ? weight.clone() : expected + 0.5 * (weight - expected);
  }
  const auto averaged = average->module()->parameters()[0].detach();
  CHECK((averaged - expected).abs().max().template item<double>() < 1e-6);
}

TEMPLATE_LIST_TEST_CASE("Services: two threads with an optimizer each have the bits of one after the other", "",
                        Served) {
  const auto train = [](int64_t salt) {
    const std::vector parameters = {numbers({40, 50}, salt).requires_grad_(),
                                    numbers({300, 200}, salt).requires_grad_()};
    typename TestType::Optimizer optimizer(parameters, typename TestType::Options(0.1));
    for (int64_t step = 1; step < 6; ++step) take_step_with(optimizer, parameters, step + salt);
    return parameters;
  };
  const auto one = train(1), other = train(2);
  std::vector<at::Tensor> beside, also;
  {
    std::jthread first([&] { beside = train(1); });
    std::jthread second([&] { also = train(2); });
  }
  expect_same_bits(beside, one);
  expect_same_bits(also, other);
}

TEMPLATE_LIST_TEST_CASE("Services: Horovod's DistributedOptimizer steps with the mean of the gradients", "", Served) {
  const auto alone = numbers({4, 5}, 1).requires_grad_();
  typename TestType::Optimizer expected(std::vector{alone}, typename TestType::Options(0.1));
  for (int64_t step = 0; step < 3; ++step) {
    alone.mutable_grad() = (numbers({4, 5}, 10 * step) + numbers({4, 5}, 10 * step + 1)) / 2;
    expected.step();
  }
  test::run_ranks(2, [&](const GroupHandle& group) {
    const auto weight = numbers({4, 5}, 1).requires_grad_();
    typename TestType::Optimizer inner(std::vector{weight}, typename TestType::Options(0.1));
    horovod::DistributedOptimizer optimizer(inner, group);
    for (int64_t step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      (weight * numbers({4, 5}, 10 * step + group.rank())).sum().backward();
      optimizer.step();
    }
    RANK_CHECK(weight.detach().allclose(alone.detach(), 1e-5, 1e-6));
  });
}

}  // namespace ddp::optim

// The optimizer's promises at their edges: options that differ between ranks, nested guards, models of odd parts.
#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <torch/optim/sgd.h>

#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <ddprun/comm/collectives.h>

#include "ddprun/horovod/horovod.h"
#include "tests/support/catch.h"
#include "tests/support/errors.h"
#include "tests/support/every_wire.h"
#include "tests/support/placement.h"
#include "tests/support/rank_checks.h"
#include "tests/support/tensors.h"

namespace ddp::horovod {
namespace {

using Catch::Matchers::ContainsSubstring;
using test::EqualsTensor;
using test::error_of;
using test::here;
using torch::optim::SGD;
using torch::optim::SGDOptions;

at::Tensor parameter(at::IntArrayRef shape = {2}) {
  return here(at::zeros(shape)).requires_grad_();
}

class Optimizers : protected test::EveryWireAndSize {};

TEST_CASE_METHOD(Optimizers, "DistributedOptimizer: options that differ between the ranks are named on every rank") {
  if (size() == 1) return;
  const std::vector<std::pair<DistributedOptimizerOptions, std::string>> cases{
      {{.compression = Compression::kFp16}, "option compression = kFp16"},
      {{.compression = Compression::kBf16}, "option compression = kBf16"},
      {{.op = Op::kSum}, "option op = kSum"},
      {{.backward_passes_per_step = 2}, "option backward_passes_per_step = 2"},
      {{.gradient_predivide_factor = 1e-9}, "option gradient_predivide_factor = 1e-09"},
      {{.num_groups = 3}, "a message of the parameters number"},
      {{.fusion_threshold_bytes = 1}, "a message of the parameters number"},
      {{.sparse_as_dense = true}, "option sparse_as_dense = true"}};
  for (const auto& [other, expected] : cases) {
    run([&](const GroupHandle& group) {
      std::vector<at::Tensor> parameters{parameter(), parameter(), parameter()};
      SGD sgd(parameters, SGDOptions(0.1));
      const bool is_other = group.rank() == group.size() - 1;
      RANK_CHECK_THAT(
          error_of<std::runtime_error>(
              [&] { DistributedOptimizer(sgd, group, is_other ? other : DistributedOptimizerOptions{}); }),
          ContainsSubstring("DistributedOptimizer: the ranks' options differ") && ContainsSubstring(expected));
      const at::Tensor sum = here(at::ones({1}));
      all_reduce(sum, group);
      RANK_CHECK(sum.item<float>() == static_cast<float>(group.size()));
    });
  }
}

TEST_CASE_METHOD(Optimizers, "DistributedOptimizer: guards that skip the synchronization nest") {
  run([](const GroupHandle& group) {
    const at::Tensor weight = parameter();
    SGD sgd(std::vector{weight}, SGDOptions(1.0));
    DistributedOptimizer optimizer(sgd, group, {.op = Op::kSum});
    weight.mul(group.rank() + 1.F).sum().backward();
    optimizer.synchronize();
    const float n = static_cast<float>(group.size());
    const float sum = n * (n + 1) / 2;
    {
      const auto outer = optimizer.skip_synchronize();
      { const auto inner = optimizer.skip_synchronize(); }
      optimizer.step();
    }
    RANK_CHECK_THAT(weight.detach(), EqualsTensor(at::full({2}, -sum)));
    RANK_INFO("the next step synchronizes again");
    optimizer.zero_grad();
    weight.mul(group.rank() + 1.F).sum().backward();
    optimizer.step();
    RANK_CHECK_THAT(weight.detach(), EqualsTensor(at::full({2}, -2 * sum)));
  });
}

TEST_CASE_METHOD(Optimizers,
                 "DistributedOptimizer: takes parameters without elements, without dimensions, frozen, and twice") {
  run([](const GroupHandle& group) {
    const at::Tensor scalar = parameter({});
    const at::Tensor empty = parameter({0, 3});
    const at::Tensor frozen = here(at::ones({2}));
    const at::Tensor weight = parameter({2, 2});
    SGD sgd(std::vector{torch::optim::OptimizerParamGroup({scalar, empty}),
                        torch::optim::OptimizerParamGroup({frozen, weight})},
            SGDOptions(1.0));
    DistributedOptimizer optimizer(sgd, group, {.num_groups = 100});
    for (int step = 1; step <= 3; ++step) {
      optimizer.zero_grad(step % 2 == 0);
      (scalar * (group.rank() + 1.F) + empty.sum() + (weight * 2).sum()).backward();
      optimizer.step();
    }
    RANK_CHECK_THAT(scalar.detach(), test::IsCloseTo(at::full({}, -3 * (group.size() + 1) / 2.F), 1e-6, 0));
    RANK_CHECK_THAT(weight.detach(), EqualsTensor(at::full({2, 2}, -6.F)));
    RANK_CHECK_THAT(frozen, EqualsTensor(at::ones({2})));
  });
}

TEST_CASE_METHOD(Optimizers, "DistributedOptimizer: steps without any backward are steps with gradients of zero") {
  run([](const GroupHandle& group) {
    const at::Tensor weight = here(at::ones({2})).requires_grad_();
    SGD sgd(std::vector{weight}, SGDOptions(0.1));
    DistributedOptimizer optimizer(sgd, group);
    for (int i = 0; i < 3; ++i) optimizer.step();
    RANK_CHECK_THAT(weight.detach(), EqualsTensor(at::ones({2})));
    optimizer.synchronize();
    optimizer.zero_grad();
  });
}

TEST_CASE_METHOD(Optimizers, "DistributedOptimizer: one backward too many is an error that the step after it forgets") {
  if (size() == 1) return;
  run([](const GroupHandle& group) {
    const at::Tensor weight = parameter();
    SGD sgd(std::vector{weight}, SGDOptions(1.0));
    DistributedOptimizer optimizer(sgd, group);
    const auto backward = [&] { weight.sum().backward(); };
    backward();
    RANK_CHECK_THAT(error_of<std::exception>(backward), ContainsSubstring("more than backward_passes_per_step=1"));
    optimizer.step();
    optimizer.zero_grad();
    weight.detach().zero_();
    backward();
    optimizer.step();
    RANK_CHECK_THAT(weight.detach(), EqualsTensor(at::full({2}, -1.F)));
  });
}

TEST_CASE_METHOD(Optimizers,
                 "DistributedOptimizer: another one may follow on the same parameters, and hooks go with theirs") {
  run([](const GroupHandle& group) {
    const at::Tensor weight = parameter();
    SGD sgd(std::vector{weight}, SGDOptions(1.0));
    for (int round = 1; round <= 3; ++round) {
      DistributedOptimizer optimizer(sgd, group);
      optimizer.zero_grad();
      weight.sum().backward();
      optimizer.step();
      RANK_CHECK_THAT(weight.detach(), EqualsTensor(at::full({2}, -1.F * static_cast<float>(round))));
    }
    // Nobody reduces any more: as often as anybody likes.
    weight.sum().backward();
    weight.sum().backward();
  });
}

TEST_CASE("DistributedOptimizer: factors that are not numbers to divide by are refused") {
  test::run_ranks(1, [](const GroupHandle& group) {
    SGD sgd(std::vector{parameter()}, SGDOptions(0.1));
    for (const double factor : {0., -1., std::numeric_limits<double>::infinity(), std::nan("")}) {
      RANK_CHECK_THAT(error_of<std::invalid_argument>(
                          [&] { DistributedOptimizer(sgd, group, {.gradient_predivide_factor = factor}); }),
                      ContainsSubstring("rank 0 of 1: DistributedOptimizer: gradient_predivide_factor must be"));
    }
    RANK_CHECK_THROWS_AS(DistributedOptimizer(sgd, group).set_backward_passes_per_step(0), std::invalid_argument);
  });
}

}  // namespace
}  // namespace ddp::horovod

// An average over several ranks with uneven and empty shares equals that over all samples at once.
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>

#include <cmath>
#include <limits>
#include <stdexcept>

#include <ddprun/comm/process_group.h>
#include <ddprun/metrics/metrics.h>

#include "tests/metrics/shared_samples.h"
#include "tests/support/catch.h"
#include "tests/support/matchers.h"
#include "tests/support/placement.h"
#include "tests/support/rank_checks.h"

namespace ddp {
namespace {

using Catch::Matchers::IsNaN;
using Catch::Matchers::WithinRel;
using Catch::Matchers::WithinULP;
using test::here;
using test::SharedSamples;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Computed by this process alone.
double computed(const Average& average) {
  ProcessGroup group = init_process_group({.rank_info = RankInfo{}});
  return average.compute(group);
}

TEST_CASE_METHOD(SharedSamples, "Average: weighs every sample equally") {
  on_ranks([](const GroupHandle& group) {
    Average average;
    RANK_CHECK_THAT(average.compute(group), IsNaN());
    if (group.rank() == 0) average.update(1.0, 7);
    if (group.rank() == 1) average.update(std::nan(""), 0);
    if (group.rank() == 2) {
      average.update(here(at::tensor(4.0F)), 3);
      average.update(here(at::tensor({-6.0}, at::kDouble)), 1);
    }
    for (int round = 0; round < 2; ++round)
      RANK_CHECK_THAT(average.compute(group), WithinULP((7.0 + 12.0 - 6.0) / 11.0, 4));
    const auto before = average.totals(group);
    RANK_CHECK(before.samples == 11);
    RANK_CHECK_THAT(before.mean(), WithinULP(average.compute(group), 4));
    average.update(2.0);  // of each rank
    RANK_CHECK_THAT(average.totals(group).sum - before.sum, WithinRel(2.0 * group.size()));
    average.reset();
    average.update(group.rank());
    RANK_CHECK_THAT(average.compute(group), WithinULP(1.0, 4));
  });
  CHECK_THROWS_AS(Average().update(1.0, -1), std::invalid_argument);
  CHECK_THROWS_AS(Average().update(here(at::zeros({2})), 1), std::invalid_argument);
}

// torch.manual_seed(23); (torch.randn(64) * 10).double().mean()
TEST_CASE_METHOD(SharedSamples, "Average: of batches of any size is PyTorch's mean of all samples") {
  at::manual_seed(23);
  const at::Tensor values = at::randn({64}).mul(10);
  const int64_t batch = GENERATE(1, 5, 64);
  on_ranks([&](const GroupHandle& group) {
    const at::Tensor own = share(values, group.rank()).to(at::kDouble);
    Average by_tensors;
    Average by_numbers;
    for (int64_t begin = 0; begin < own.size(0); begin += batch) {
      const at::Tensor part = own.slice(0, begin, begin + batch);
      by_tensors.update(part.mean(), part.size(0));
      by_numbers.update(part.mean().item<double>(), part.size(0));
    }
    RANK_CHECK_THAT(by_tensors.compute(group), WithinRel(0.0021589994430541992, 1e-11));
    RANK_CHECK_THAT(by_numbers.compute(group), WithinRel(0.0021589994430541992, 1e-11));
  });
}

TEST_CASE("Average: is a double's, whatever the tensors are") {
  Average average;
  // In float32 the hundredth of these would be lost in the sum.
  average.update(here(at::tensor(16777216.0F)), 1);
  for (int i = 0; i < 99; ++i) average.update(here(at::tensor(1.0F)), 1);
  CHECK_THAT(computed(average), WithinULP((16777216.0 + 99.0) / 100, 0));
  Average of_halves;
  for (int i = 0; i < 1000; ++i) of_halves.update(here(at::tensor(0.5)).to(at::kHalf), 1000);
  CHECK_THAT(computed(of_halves), WithinULP(0.5, 0));
  Average of_integers;
  of_integers.update(here(at::tensor({7}, at::kLong)), 2);
  of_integers.update(here(at::ones({1, 1, 1}, at::kBool)), 1);
  CHECK_THAT(computed(of_integers), WithinULP(5.0, 0));
}

TEST_CASE("Average: mixes numbers and tensors") {
  Average average;
  average.update(1.0, 1);
  average.update(here(at::tensor(2.0)), 2);
  average.update(3.0, 3);
  average.update(here(at::tensor(4.0)), 4);
  CHECK_THAT(computed(average), WithinULP(3.0, 0));
}

TEST_CASE("Average: a value that is not finite shows, and one over no samples does not") {
  const auto of = [](double value, int64_t samples) {
    Average average;
    average.update(1.0);
    average.update(value, samples);
    Average tensors;
    tensors.update(here(at::tensor(1.0)));
    tensors.update(here(at::tensor(value)), samples);
    CHECK((computed(tensors) == computed(average) || (std::isnan(computed(tensors)) && std::isnan(computed(average)))));
    return computed(average);
  };
  CHECK(of(kInfinity, 3) == kInfinity);
  CHECK(of(-kInfinity, 1) == -kInfinity);
  CHECK_THAT(of(std::nan(""), 1), IsNaN());
  CHECK(of(std::nan(""), 0) == 1.0);
  CHECK(of(kInfinity, 0) == 1.0);
}

TEST_CASE("Average: of nothing is NaN, also after updates with no samples") {
  Average average;
  CHECK_THAT(computed(average), IsNaN());
  average.update(5.0, 0);
  average.update(here(at::tensor(5.0)), 0);
  CHECK_THAT(computed(average), IsNaN());
  average.update(5.0, 1);
  average.reset();
  CHECK_THAT(computed(average), IsNaN());
}

TEST_CASE("Average: a loss leaves its graph behind and may be changed afterwards") {
  at::Tensor weight = here(at::ones({1})).requires_grad_();
  at::Tensor loss = weight.mul(3.0).sum();
  Average average;
  average.update(loss, 2);
  average.update(loss.detach(), 2);
  {
    const c10::InferenceMode inference;
    average.update(loss.detach(), 1);
  }
  average.update(loss, 1);
  loss.detach().fill_(100.0);
  CHECK_THAT(computed(average), WithinULP(3.0, 0));
  UNSCOPED_INFO("double, as the sum is: it must be no alias of what it was given");
  const at::Tensor reused = here(at::ones({}, at::kDouble));
  Average once;
  once.update(reused, 1);
  reused.fill_(9.0);
  CHECK_THAT(computed(once), WithinULP(1.0, 0));
}

TEST_CASE("Average: a copy adds up on its own") {
  Average first;
  first.update(here(at::tensor(1.0)), 1);
  Average second = first;
  second.update(here(at::tensor(3.0)), 1);
  second.update(5.0, 1);
  CHECK(computed(first) == 1.0);
  CHECK(computed(second) == 3.0);
}

TEST_CASE("Average: what it cannot add is refused and counts nothing") {
  Average average;
  average.update(2.0, 1);
  CHECK_THROWS_AS(average.update(1.0, -1), std::invalid_argument);
  CHECK_THROWS_AS(average.update(here(at::tensor(1.0)), -1), std::invalid_argument);
  CHECK_THROWS_AS(average.update(here(at::zeros({2}))), std::invalid_argument);
  CHECK_THROWS_AS(average.update(here(at::zeros({0}))), std::invalid_argument);
  CHECK_THROWS_AS(average.update(at::Tensor()), std::invalid_argument);
  CHECK_THROWS_AS(average.update(here(at::zeros({2})), 0), std::invalid_argument);
  CHECK(computed(average) == 2.0);
}

}  // namespace
}  // namespace ddp

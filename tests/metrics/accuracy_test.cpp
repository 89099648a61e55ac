// Accuracy over several ranks with uneven and empty shares equals that over all samples at once.
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>

#include <limits>
#include <stdexcept>
#include <vector>

#include <ddprun/comm/process_group.h>
#include <ddprun/metrics/metrics.h>

#include "tests/metrics/shared_samples.h"
#include "tests/support/catch.h"
#include "tests/support/matchers.h"
#include "tests/support/placement.h"
#include "tests/support/rank_checks.h"

namespace ddp {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::IsNaN;
using Catch::Matchers::MessageMatches;
using Catch::Matchers::WithinULP;
using test::ElementsAre;
using test::here;
using test::SharedSamples;

// Counted by this process alone.
AccuracyCounts counted(const Accuracy& accuracy) {
  ProcessGroup group = init_process_group({.rank_info = RankInfo{}});
  return accuracy.counts(group);
}

TEST_CASE_METHOD(SharedSamples, "Accuracy: counts the k best guesses") {
  // Sample i has its right class in place i % 4 of its guesses.
  const at::Tensor target = at::arange(11, at::kLong).remainder(5);
  at::Tensor scores = at::zeros({11, 5});
  for (int64_t i = 0; i < 11; ++i) {
    for (int64_t place = 0; place < 5; ++place) {
      scores[i][(target[i].item<int64_t>() - i % 4 + place + 5) % 5] = 10.0 - static_cast<double>(place);
    }
  }
  on_ranks([&](const GroupHandle& group) {
    Accuracy accuracy({1, 3});
    accuracy.update(share(scores, group.rank()), share(target, group.rank()));
    RANK_CHECK_THAT(accuracy.compute(group), ElementsAre(WithinULP(3.0 / 11, 4), WithinULP(9.0 / 11, 4)));
    accuracy.update(share(scores, group.rank()), share(target, group.rank()));
    RANK_CHECK_THAT(accuracy.compute(group), ElementsAre(WithinULP(3.0 / 11, 4), WithinULP(9.0 / 11, 4)));
    RANK_CHECK_THAT(accuracy.counts(group).right, ElementsAre(6, 18));
    RANK_CHECK(accuracy.counts(group).samples == 22);
    accuracy.reset();
    RANK_CHECK_THAT(accuracy.compute(group), ElementsAre(IsNaN(), IsNaN()));
    RANK_CHECK(accuracy.counts(group).samples == 0);
  });
}

// torch.manual_seed(21); scores = torch.randn(500, 12); target = torch.randint(12, (500,)), counted by topk().
TEST_CASE_METHOD(SharedSamples, "Accuracy: has PyTorch's counts for every k, in the order that was asked for") {
  at::manual_seed(21);
  const at::Tensor scores = at::randn({500, 12});
  const at::Tensor target = at::randint(12, {500}, at::kLong);
  on_ranks([&](const GroupHandle& group) {
    Accuracy accuracy({5, 1, 2, 3, 12, 11, 1});
    const at::Tensor own_scores = share(scores, group.rank());
    const at::Tensor own_target = share(target, group.rank());
    for (int64_t begin = 0; begin < own_scores.size(0); begin += 64) {
      accuracy.update(own_scores.slice(0, begin, begin + 64), own_target.slice(0, begin, begin + 64));
    }
    const AccuracyCounts counts = accuracy.counts(group);
    RANK_CHECK_THAT(counts.right, ElementsAre(231, 50, 86, 129, 500, 464, 50));
    RANK_CHECK(counts.samples == 500);
    RANK_CHECK_THAT(accuracy.compute(group)[4], WithinULP(1.0, 0));
  });
}

TEST_CASE_METHOD(SharedSamples, "Accuracy: of equal scores the first is the guess") {
  on_ranks([](const GroupHandle& group) {
    Accuracy accuracy;
    accuracy.update(here(at::zeros({8, 1000})), here(at::tensor({0, 0, 1, 2, 0, 999, 0, 500}, at::kLong)));
    RANK_CHECK_THAT(accuracy.counts(group).right, ElementsAre(4 * kRanks));
  });
}

TEST_CASE("Accuracy: takes scores of any memory layout and floating-point dtype") {
  at::manual_seed(4);
  const at::Tensor scores = here(at::randn({64, 7}));
  const at::Tensor target = here(at::randint(7, {64}, at::kLong));
  Accuracy plain({1, 3});
  plain.update(scores, target);
  const auto expected = counted(plain).right;
  const auto is_expected_of = [&](const at::Tensor& given, const at::Tensor& right) {
    Accuracy accuracy({1, 3});
    accuracy.update(given, right);
    return counted(accuracy).right == expected;
  };
  CHECK(is_expected_of(scores.t().contiguous().t(), target));
  CHECK(is_expected_of(scores.to(at::kDouble), target));
  CHECK(is_expected_of(scores.repeat({1, 2}).slice(1, 0, 7), target.unsqueeze(1).expand({64, 3}).select(1, 2)));
  CHECK(is_expected_of(scores.clone().requires_grad_(), target));
}

TEST_CASE("Accuracy: NaN counts as the greatest score, and infinities as scores, as in PyTorch") {
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  Accuracy accuracy({1, 2});
  accuracy.update(
      here(at::tensor({kNaN, 1.0F, 2.0F, kInfinity, 0.0F, -kInfinity, -kInfinity, -kInfinity, 0.0F})).view({3, 3}),
      here(at::tensor({0, 0, 2}, at::kLong)));
  CHECK_THAT(counted(accuracy).right, ElementsAre(3, 3));
}

TEST_CASE("Accuracy: a batch without samples counts nothing, whatever its device options") {
  Accuracy accuracy({1, 2});
  accuracy.update(here(at::zeros({0, 5})), here(at::zeros({0}, at::kLong)));
  CHECK(counted(accuracy).samples == 0);
  CHECK_THAT(counted(accuracy).right, ElementsAre(0, 0));
  accuracy.update(here(at::zeros({2, 5})), here(at::zeros({2}, at::kLong)));
  accuracy.update(here(at::zeros({0, 9})), here(at::zeros({0}, at::kLong)));
  CHECK(counted(accuracy).samples == 2);
}

TEST_CASE("Accuracy: one class is always guessed right, and a target that is not a class never") {
  Accuracy accuracy;
  accuracy.update(here(at::zeros({4, 1})), here(at::tensor({0, 0, -100, 1}, at::kLong)));
  CHECK_THAT(counted(accuracy).right, ElementsAre(2));
  CHECK(counted(accuracy).samples == 4);
}

TEST_CASE("Accuracy: a copy counts on its own") {
  const at::Tensor scores = here(at::zeros({3, 2}));
  const at::Tensor target = here(at::zeros({3}, at::kLong));
  Accuracy first;
  first.update(scores, target);
  Accuracy second = first;
  second.update(scores, target);
  CHECK(counted(first).samples == 3);
  CHECK_THAT(counted(first).right, ElementsAre(3));
  CHECK(counted(second).samples == 6);
  first.reset();
  CHECK(counted(second).samples == 6);
}

TEST_CASE("Accuracy: goes on outside of the inference mode in which it began, and the other way round") {
  const at::Tensor scores = here(at::zeros({3, 2}));
  const at::Tensor target = here(at::zeros({3}, at::kLong));
  Accuracy accuracy;
  {
    const c10::InferenceMode inference;
    accuracy.update(scores, target);
  }
  accuracy.update(scores, target);
  {
    const c10::InferenceMode inference;
    accuracy.update(scores, target);
    CHECK(counted(accuracy).samples == 9);
  }
  CHECK(counted(accuracy).samples == 9);
}

TEST_CASE("Accuracy: neither keeps nor changes what it is given") {
  const at::Tensor scores = here(at::tensor({0.0F, 1.0F})).view({1, 2});
  const at::Tensor target = here(at::ones({1}, at::kLong));
  Accuracy accuracy;
  accuracy.update(scores, target);
  CHECK(scores.equal(here(at::tensor({0.0F, 1.0F})).view({1, 2})));
  scores.fill_(0.0);
  target.fill_(0);
  CHECK_THAT(counted(accuracy).right, ElementsAre(1));
}

TEST_CASE("Accuracy: what does not fit is refused with both shapes, and counts nothing") {
  const auto refused = [](auto action, const char* text) {
    CHECK_THROWS_MATCHES(action(), std::invalid_argument, MessageMatches(ContainsSubstring(text)));
  };
  Accuracy accuracy({1, 5});
  const at::Tensor target = here(at::zeros({3}, at::kLong));
  refused([&] { accuracy.update(here(at::zeros({3, 4})), target); }, "at least 5 classes");
  refused([&] { accuracy.update(here(at::zeros({3, 9})), here(at::zeros({2}, at::kLong))); }, "[3, 9] and [2]");
  refused([&] { accuracy.update(here(at::zeros({3})), target); }, "[3] and [3]");
  refused([&] { accuracy.update(here(at::zeros({})), target); }, "[] and [3]");
  refused([&] { accuracy.update(here(at::zeros({3, 9, 2})), target); }, "[3, 9, 2]");
  refused([&] { accuracy.update(here(at::zeros({3, 9})), target.unsqueeze(1)); }, "[3, 1]");
  CHECK(counted(accuracy).samples == 0);
  refused([] { Accuracy({0}); }, "at least 1");
  refused([] { Accuracy({1, -5}); }, "at least 1");
  refused([] { Accuracy(std::vector<int64_t>{}); }, "such as {1, 5}");
}

}  // namespace
}  // namespace ddp

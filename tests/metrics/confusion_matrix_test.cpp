// A confusion matrix over several ranks with uneven and empty shares equals that over all samples at once.
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
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
using Counts = std::vector<int64_t>;
using test::ElementsAre;
using test::here;
using test::SharedSamples;

// Counted by this process alone.
Counts counted_pairs(const ConfusionMatrix& matrix) {
  ProcessGroup group = init_process_group({.rank_info = RankInfo{}});
  return matrix.compute(group).counts;
}

at::Tensor classes(const std::vector<int64_t>& values) {
  return here(at::tensor(values, at::kLong));
}

TEST_CASE_METHOD(SharedSamples, "ConfusionMatrix: has every pair once") {
  at::manual_seed(3);
  const at::Tensor guess = at::randint(4, {11, 6, 5}, at::kLong);
  const at::Tensor target = at::randint(4, {11, 6, 5}, at::kLong);
  Counts expected(16, 0);
  for (int64_t i = 0; i < guess.numel(); ++i) {
    const int64_t row = target.const_data_ptr<int64_t>()[i];
    if (row != 2) ++expected[static_cast<size_t>(row * 4 + guess.const_data_ptr<int64_t>()[i])];
  }
  on_ranks([&](const GroupHandle& group) {
    ConfusionMatrix matrix(4, {.ignore_index = 2});
    matrix.update(share(guess, group.rank()), share(target, group.rank()));
    for (int round = 0; round < 2; ++round) RANK_CHECK(matrix.compute(group).counts == expected);
    matrix.reset();
    RANK_CHECK(matrix.compute(group).counts == Counts(16, 0));
  });
}

// torch.manual_seed(22); guess = torch.randint(5, (3, 7, 9)); target = torch.randint(-1, 5, (3, 7, 9)), of which -1 is
// 255, counted pair by pair in Python; the scores with tensors of float64.
TEST_CASE_METHOD(SharedSamples, "ConfusionMatrix: gives Python's counts and scores of a segmentation") {
  at::manual_seed(22);
  const at::Tensor guess = at::randint(5, {3, 7, 9}, at::kLong);
  at::Tensor target = at::randint(-1, 5, {3, 7, 9}, at::kLong);
  target = target.masked_fill(target.eq(-1), 255);
  on_ranks([&](const GroupHandle& group) {
    ConfusionMatrix matrix(5, {.ignore_index = 255});
    matrix.update(share(guess, group.rank()), share(target, group.rank()));
    const ConfusionCounts result = matrix.compute(group);
    RANK_CHECK(result.classes == 5);
    RANK_CHECK(result.counts == Counts{11, 6, 6, 6, 5, 7, 6, 3, 5, 4, 6, 4, 7, 4, 7, 4, 5, 6, 7, 5, 10, 10, 9, 8, 6});
    RANK_CHECK_THAT(result.accuracy(), WithinULP(0.2356687898089172, 1));
    RANK_CHECK_THAT(result.iou(),
                    ElementsAre(WithinULP(0.18032786885245902, 1), WithinULP(0.12, 1), WithinULP(0.1346153846153846, 1),
                                WithinULP(0.14, 1), WithinULP(0.09375, 1)));
    RANK_CHECK_THAT(result.dice(), ElementsAre(WithinULP(0.3055555555555556, 1), WithinULP(0.21428571428571427, 1),
                                               WithinULP(0.23728813559322035, 1), WithinULP(0.24561403508771928, 1),
                                               WithinULP(0.17142857142857143, 1)));
    RANK_CHECK_THAT(result.mean_iou(), WithinULP(0.13373865069356872, 4));
    RANK_CHECK_THAT(result.mean_dice(), WithinULP(0.23483440239015616, 4));
  });
}

TEST_CASE("ConfusionCounts: gives IoU and dice per class and leaves absent classes out of means") {
  // Right class 0: 3 right, 1 taken for 1. Right class 1: 2 right, 2 taken for 0. Class 2 does not occur.
  const ConfusionCounts matrix{.classes = 3, .counts = {3, 1, 0, 2, 2, 0, 0, 0, 0}};
  CHECK_THAT(matrix.accuracy(), WithinULP(5.0 / 8, 4));
  CHECK_THAT(matrix.iou(), ElementsAre(WithinULP(3.0 / 6, 4), WithinULP(2.0 / 5, 4), IsNaN()));
  CHECK_THAT(matrix.dice(), ElementsAre(WithinULP(6.0 / 9, 4), WithinULP(4.0 / 7, 4), IsNaN()));
  CHECK_THAT(matrix.mean_iou(), WithinULP((0.5 + 0.4) / 2, 4));
  CHECK_THAT(matrix.mean_dice(), WithinULP((6.0 / 9 + 4.0 / 7) / 2, 4));
  const ConfusionCounts empty{.classes = 1, .counts = {0}};
  CHECK_THAT(empty.accuracy(), IsNaN());
  CHECK_THAT(empty.mean_iou(), IsNaN());
}

TEST_CASE("ConfusionCounts: a class that was only guessed, or never, is wrong and not absent") {
  const ConfusionCounts matrix{.classes = 3, .counts = {2, 1, 0, 0, 0, 0, 4, 0, 0}};
  CHECK_THAT(matrix.iou(), ElementsAre(WithinULP(2.0 / 7, 1), WithinULP(0.0, 0), WithinULP(0.0, 0)));
  CHECK_THAT(matrix.dice(), ElementsAre(WithinULP(4.0 / 9, 1), WithinULP(0.0, 0), WithinULP(0.0, 0)));
  CHECK_THAT(matrix.mean_iou(), WithinULP(2.0 / 21, 1));
}

TEST_CASE("ConfusionCounts: all right is one") {
  const ConfusionCounts matrix{.classes = 2, .counts = {5, 0, 0, 7}};
  CHECK(matrix.accuracy() == 1.0);
  CHECK_THAT(matrix.iou(), ElementsAre(WithinULP(1.0, 0), WithinULP(1.0, 0)));
  CHECK(matrix.mean_dice() == 1.0);
}

TEST_CASE("ConfusionCounts: counts beyond 32 bits keep their ratios") {
  constexpr int64_t kMany = int64_t{1} << 40;
  const ConfusionCounts matrix{.classes = 2, .counts = {3 * kMany, kMany, 0, 4 * kMany}};
  CHECK(matrix.accuracy() == 7.0 / 8);
  CHECK_THAT(matrix.dice(), ElementsAre(WithinULP(6.0 / 7, 1), WithinULP(8.0 / 9, 1)));
}

TEST_CASE("ConfusionMatrix: rows are right classes and columns guesses") {
  ConfusionMatrix matrix(3);
  matrix.update(classes({2}), classes({0}));
  CHECK(counted_pairs(matrix) == Counts{0, 0, 1, 0, 0, 0, 0, 0, 0});
}

TEST_CASE("ConfusionMatrix: takes integers of any dtype, shape and memory layout") {
  at::manual_seed(8);
  const at::Tensor guess = here(at::randint(3, {4, 6}, at::kLong));
  const at::Tensor target = here(at::randint(3, {4, 6}, at::kLong));
  ConfusionMatrix plain(3);
  plain.update(guess, target);
  const auto is_the_same = [&](const at::Tensor& a, const at::Tensor& b) {
    ConfusionMatrix matrix(3);
    matrix.update(a, b);
    return counted_pairs(matrix) == counted_pairs(plain);
  };
  for (const at::ScalarType dtype : {at::kByte, at::kChar, at::kShort, at::kInt}) {
    CHECK(is_the_same(guess.to(dtype), target));
    CHECK(is_the_same(guess, target.to(dtype)));
  }
  CHECK(is_the_same(guess.t(), target.t()));
  CHECK(is_the_same(guess.t().contiguous().t(), target));
  CHECK(is_the_same(guess.view({2, 2, 3, 2}), target.view({2, 2, 3, 2})));
  ConfusionMatrix of_bools(2);
  of_bools.update(here(at::ones({3}, at::kBool)), here(at::zeros({3}, at::kBool)));
  CHECK(counted_pairs(of_bools) == Counts{0, 3, 0, 0});
  ConfusionMatrix of_one(2);
  of_one.update(here(at::ones({}, at::kLong)), here(at::ones({}, at::kLong)));
  CHECK(counted_pairs(of_one) == Counts{0, 0, 0, 1});
}

TEST_CASE("ConfusionMatrix: a batch without samples counts nothing") {
  ConfusionMatrix matrix(2, {.ignore_index = 9});
  matrix.update(here(at::zeros({0, 3}, at::kLong)), here(at::zeros({0, 3}, at::kLong)));
  CHECK(counted_pairs(matrix) == Counts(4, 0));
  UNSCOPED_INFO("nor one of which all are ignored, whatever was guessed there");
  matrix.update(classes({0, 77, -5}), classes({9, 9, 9}));
  CHECK(counted_pairs(matrix) == Counts(4, 0));
}

TEST_CASE("ConfusionMatrix: what is ignored may be a class, a negative number, or nothing that occurs") {
  const auto with = [](std::optional<int64_t> ignored) {
    ConfusionMatrix matrix(2, {.ignore_index = ignored});
    matrix.update(classes({0, 1, 1}), classes({0, 0, 1}));
    return counted_pairs(matrix);
  };
  CHECK(with(std::nullopt) == Counts{1, 1, 0, 1});
  CHECK(with(1) == Counts{1, 1, 0, 0});
  CHECK(with(-100) == Counts{1, 1, 0, 1});
  UNSCOPED_INFO("it is the right class that is ignored, not the guess");
  CHECK(with(0) == Counts{0, 0, 0, 1});
}

TEST_CASE("ConfusionMatrix: a copy counts on its own, in inference mode or not") {
  ConfusionMatrix first(1);
  {
    const c10::InferenceMode inference;
    first.update(classes({0}), classes({0}));
  }
  ConfusionMatrix second = first;
  second.update(classes({0, 0}), classes({0, 0}));
  CHECK(counted_pairs(first) == Counts{1});
  CHECK(counted_pairs(second) == Counts{3});
}

TEST_CASE("ConfusionMatrix: what does not fit is refused and counts nothing") {
  const auto refused = [](auto action, const char* text) {
    CHECK_THROWS_MATCHES(action(), std::invalid_argument, MessageMatches(ContainsSubstring(text)));
  };
  refused([] { ConfusionMatrix(0); }, "got 0");
  refused([] { ConfusionMatrix(-1); }, "got -1");
  refused([] { ConfusionMatrix(32'769); }, "1 to 32768 classes, got 32769");
  refused([] { ConfusionMatrix(std::numeric_limits<int64_t>::max()); }, "got 9223372036854775807");
  ConfusionMatrix matrix(3);
  refused([&] { matrix.update(here(at::zeros({2}, at::kLong)), here(at::zeros({3}, at::kLong))); }, "equal shape");
  refused(
      [&] {
        matrix.update(here(at::zeros({2, 1}, at::kLong)), here(at::zeros({2}, at::kLong)));
      },
      "[2, 1] and Long [2]");
  refused([&] { matrix.update(here(at::zeros({2})), here(at::zeros({2}, at::kLong))); }, "integer tensors");
  refused([&] { matrix.update(here(at::zeros({2}, at::kLong)), here(at::zeros({2}, at::kHalf))); }, "integer tensors");
  refused([&] { matrix.update(here(at::zeros({2}, at::kComplexFloat)), here(at::zeros({2}, at::kLong))); },
          "integer tensors");
  refused([&] { matrix.update(here(at::full({2}, 3, at::kLong)), here(at::zeros({2}, at::kLong))); }, "within 0 to 2");
  refused([&] { matrix.update(here(at::zeros({2}, at::kLong)), here(at::full({2}, -1, at::kLong))); }, "within 0 to 2");
  refused([&] { matrix.update(classes({0, 1, 2, 3}), classes({0, 1, 2, 2})); }, "within 0 to 2");
  constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();
  refused([&] { matrix.update(classes({kHuge}), classes({0})); }, "within 0 to 2");
  refused([&] { matrix.update(classes({0}), classes({kHuge / 3 + 1})); }, "within 0 to 2");
  CHECK(counted_pairs(matrix) == Counts(9, 0));
}

}  // namespace
}  // namespace ddp

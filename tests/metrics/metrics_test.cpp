// Metrics over several ranks with uneven and empty shares equal those over all samples at once, on gloo and on a
// backend whose results come late.
#include <ATen/ATen.h>

#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <stdexcept>
#include <vector>

#include <ddprun/metrics/accuracy.h>
#include <ddprun/metrics/average.h>
#include <ddprun/metrics/confusion_matrix.h>
#include <ddprun/metrics/throughput.h>

#include "tests/support/catch.h"
#include "tests/support/every_wire.h"
#include "tests/support/matchers.h"
#include "tests/support/rank_checks.h"

namespace ddp {
namespace {

using Catch::Matchers::IsNaN;
using Catch::Matchers::WithinULP;
using test::ElementsAre;

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

constexpr int kRanks = 3;

/// Rank 0 has 7 samples, rank 1 none, rank 2 the other 4.
at::Tensor share(const at::Tensor& all, int rank) {
  const int64_t begin[] = {0, 7, 7};
  const int64_t end[] = {7, 7, 11};
  return all.slice(0, begin[rank], end[rank]);
}

class Metrics : protected test::EveryWire {
 protected:
  void on_ranks(const std::function<void(const GroupHandle&)>& body) const { run(kRanks, body); }
};

TEST_CASE_METHOD(Metrics, "Metrics: an average weighs every sample equally") {
  on_ranks([](const GroupHandle& group) {
    Average average;
    RANK_CHECK_THAT(average.compute(group), IsNaN());
    if (group.rank() == 0) average.update(1.0, 7);
    if (group.rank() == 1) average.update(std::nan(""), 0);
    if (group.rank() == 2) {
      average.update(at::tensor(4.0F), 3);
      average.update(at::tensor({-6.0}, at::kDouble), 1);
    }
    for (int round = 0; round < 2; ++round)
      RANK_CHECK_THAT(average.compute(group), WithinULP((7.0 + 12.0 - 6.0) / 11.0, 4));
    average.reset();
    average.update(group.rank());
    RANK_CHECK_THAT(average.compute(group), WithinULP(1.0, 4));
  });
  CHECK_THROWS_AS(Average().update(1.0, -1), std::invalid_argument);
  CHECK_THROWS_AS(Average().update(at::zeros({2}), 1), std::invalid_argument);
}

TEST_CASE_METHOD(Metrics, "Metrics: accuracy counts the k best guesses") {
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

TEST_CASE_METHOD(Metrics, "Metrics: of equal scores the first is the guess") {
  on_ranks([](const GroupHandle& group) {
    Accuracy accuracy;
    accuracy.update(at::zeros({8, 1000}), at::tensor({0, 0, 1, 2, 0, 999, 0, 500}, at::kLong));
    RANK_CHECK_THAT(accuracy.counts(group).right, ElementsAre(4 * kRanks));
  });
}

TEST_CASE_METHOD(Metrics, "Metrics: a confusion matrix has every pair once") {
  at::manual_seed(3);
  const at::Tensor guess = at::randint(4, {11, 6, 5}, at::kLong);
  const at::Tensor target = at::randint(4, {11, 6, 5}, at::kLong);
  std::vector<int64_t> expected(16, 0);
  for (int64_t i = 0; i < guess.numel(); ++i) {
    const int64_t row = target.const_data_ptr<int64_t>()[i];
    if (row != 2) ++expected[static_cast<size_t>(row * 4 + guess.const_data_ptr<int64_t>()[i])];
  }
  on_ranks([&](const GroupHandle& group) {
    ConfusionMatrix matrix(4, {.ignore_index = 2});
    matrix.update(share(guess, group.rank()), share(target, group.rank()));
    for (int round = 0; round < 2; ++round) RANK_CHECK(matrix.compute(group).counts == expected);
    matrix.reset();
    RANK_CHECK(matrix.compute(group).counts == std::vector<int64_t>(16, 0));
  });
}

TEST_CASE_METHOD(Metrics, "Metrics: throughput is all samples over the longest time") {
  on_ranks([](const GroupHandle& group) {
    Throughput throughput;
    throughput.update(1'000'000 * (group.rank() + 1));
    const auto before = std::chrono::steady_clock::now();
    while (throughput.per_second() > 1e12 || std::chrono::steady_clock::now() - before < std::chrono::milliseconds(2)) {
    }
    const double rate = throughput.compute(group);
    RANK_CHECK(rate > 0);
    RANK_CHECK(rate <= 6e6 / 2e-3);
    throughput.reset();
    RANK_CHECK(throughput.compute(group) == 0.0);
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

TEST_CASE("Metrics: shapes and classes that do not fit are refused") {
  const auto refused = [](auto action, const char* text) {
    CHECK_THROWS_MATCHES(action(), std::invalid_argument, MessageMatches(ContainsSubstring(text)));
  };
  Accuracy accuracy({5});
  refused([&] { accuracy.update(at::zeros({3, 4}), at::zeros({3}, at::kLong)); }, "at least 5 classes");
  refused([&] { accuracy.update(at::zeros({3, 9}), at::zeros({2}, at::kLong)); }, "[3, 9] and [2]");
  refused([] { Accuracy({0}); }, "at least 1");
  refused([] { ConfusionMatrix(0); }, "got 0");
  ConfusionMatrix matrix(3);
  refused([&] { matrix.update(at::zeros({2}, at::kLong), at::zeros({3}, at::kLong)); }, "equal shape");
  refused([&] { matrix.update(at::zeros({2}), at::zeros({2}, at::kLong)); }, "integer tensors");
  refused([&] { matrix.update(at::full({2}, 3, at::kLong), at::zeros({2}, at::kLong)); }, "within 0 to 2");
  refused([&] { matrix.update(at::zeros({2}, at::kLong), at::full({2}, -1, at::kLong)); }, "within 0 to 2");
}

}  // namespace
}  // namespace ddp

// Metrics over several ranks with uneven and empty shares equal those over all samples at once, on gloo and on a
// backend whose results come late.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "metrics/accuracy.h"
#include "metrics/average.h"
#include "metrics/confusion_matrix.h"
#include "metrics/throughput.h"
#include "tests/support/ranks.h"

namespace ddp {
namespace {

using testing::DoubleEq;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsNan;
using testing::ThrowsMessage;

constexpr int kRanks = 3;

/// Rank 0 has 7 samples, rank 1 none, rank 2 the other 4.
at::Tensor share(const at::Tensor& all, int rank) {
  const int64_t begin[] = {0, 7, 7};
  const int64_t end[] = {7, 7, 11};
  return all.slice(0, begin[rank], end[rank]);
}

class MetricsTest : public testing::TestWithParam<test::Wire> {
 protected:
  void on_ranks(const std::function<void(const GroupHandle&)>& body) {
    test::run_ranks(kRanks, body, {.wire = GetParam()});
  }
};

TEST_P(MetricsTest, an_average_weighs_every_sample_equally) {
  on_ranks([](const GroupHandle& group) {
    Average average;
    EXPECT_THAT(average.compute(group), IsNan());
    if (group.rank() == 0) average.update(1.0, 7);
    if (group.rank() == 1) average.update(std::nan(""), 0);
    if (group.rank() == 2) {
      average.update(at::tensor(4.0F), 3);
      average.update(at::tensor({-6.0}, at::kDouble), 1);
    }
    for (int round = 0; round < 2; ++round) EXPECT_DOUBLE_EQ(average.compute(group), (7.0 + 12.0 - 6.0) / 11.0);
    average.reset();
    average.update(group.rank());
    EXPECT_DOUBLE_EQ(average.compute(group), 1.0);
  });
  EXPECT_THROW(Average().update(1.0, -1), std::invalid_argument);
  EXPECT_THROW(Average().update(at::zeros({2}), 1), std::invalid_argument);
}

TEST_P(MetricsTest, accuracy_counts_the_k_best_guesses) {
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
    EXPECT_THAT(accuracy.compute(group), ElementsAre(DoubleEq(3.0 / 11), DoubleEq(9.0 / 11)));
    accuracy.update(share(scores, group.rank()), share(target, group.rank()));
    EXPECT_THAT(accuracy.compute(group), ElementsAre(DoubleEq(3.0 / 11), DoubleEq(9.0 / 11)));
    EXPECT_THAT(accuracy.counts(group).right, ElementsAre(6, 18));
    EXPECT_EQ(accuracy.counts(group).samples, 22);
    accuracy.reset();
    EXPECT_THAT(accuracy.compute(group), ElementsAre(IsNan(), IsNan()));
    EXPECT_EQ(accuracy.counts(group).samples, 0);
  });
}

TEST_P(MetricsTest, of_equal_scores_the_first_is_the_guess) {
  on_ranks([](const GroupHandle& group) {
    Accuracy accuracy;
    accuracy.update(at::zeros({8, 1000}), at::tensor({0, 0, 1, 2, 0, 999, 0, 500}, at::kLong));
    EXPECT_THAT(accuracy.counts(group).right, ElementsAre(4 * kRanks));
  });
}

TEST_P(MetricsTest, a_confusion_matrix_has_every_pair_once) {
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
    for (int round = 0; round < 2; ++round) EXPECT_EQ(matrix.compute(group).counts, expected);
    matrix.reset();
    EXPECT_EQ(matrix.compute(group).counts, std::vector<int64_t>(16, 0));
  });
}

TEST_P(MetricsTest, throughput_is_all_samples_over_the_longest_time) {
  on_ranks([](const GroupHandle& group) {
    Throughput throughput;
    throughput.update(1'000'000 * (group.rank() + 1));
    const auto before = std::chrono::steady_clock::now();
    while (throughput.per_second() > 1e12 || std::chrono::steady_clock::now() - before < std::chrono::milliseconds(2)) {
    }
    const double rate = throughput.compute(group);
    EXPECT_GT(rate, 0);
    EXPECT_LE(rate, 6e6 / 2e-3);
    throughput.reset();
    EXPECT_EQ(throughput.compute(group), 0.0);
  });
}

INSTANTIATE_TEST_SUITE_P(wires, MetricsTest, testing::Values(test::Wire::kGloo, test::Wire::kLate));

TEST(ConfusionCounts, gives_iou_and_dice_per_class_and_leaves_absent_classes_out_of_means) {
  // Right class 0: 3 right, 1 taken for 1. Right class 1: 2 right, 2 taken for 0. Class 2 does not occur.
  const ConfusionCounts matrix{.classes = 3, .counts = {3, 1, 0, 2, 2, 0, 0, 0, 0}};
  EXPECT_DOUBLE_EQ(matrix.accuracy(), 5.0 / 8);
  EXPECT_THAT(matrix.iou(), ElementsAre(DoubleEq(3.0 / 6), DoubleEq(2.0 / 5), IsNan()));
  EXPECT_THAT(matrix.dice(), ElementsAre(DoubleEq(6.0 / 9), DoubleEq(4.0 / 7), IsNan()));
  EXPECT_DOUBLE_EQ(matrix.mean_iou(), (0.5 + 0.4) / 2);
  EXPECT_DOUBLE_EQ(matrix.mean_dice(), (6.0 / 9 + 4.0 / 7) / 2);
  const ConfusionCounts empty{.classes = 1, .counts = {0}};
  EXPECT_THAT(empty.accuracy(), IsNan());
  EXPECT_THAT(empty.mean_iou(), IsNan());
}

TEST(Metrics, shapes_and_classes_that_do_not_fit_are_refused) {
  const auto refused = [](auto action, const char* text) {
    EXPECT_THAT(action, ThrowsMessage<std::invalid_argument>(HasSubstr(text)));
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

#include "training/epoch_metric.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace ddp {
namespace {

TEST(EpochLine, shows_the_loss_and_each_metric_as_it_wants_to_be_shown) {
  EXPECT_EQ(epoch_line(0, 1.23456, {}), "epoch 0: loss 1.2346");
  EXPECT_EQ(epoch_line(12, 0.5, {ratio_metric("accuracy", 46, 101), {"loss", 2}}),
            "epoch 12: loss 0.5000, validation accuracy 45.5 % (46/101), validation loss 2.0000");
}

TEST(EpochLine, holds_any_number) {
  EXPECT_EQ(epoch_line(0, std::numeric_limits<double>::quiet_NaN(), {}), "epoch 0: loss nan");
  EXPECT_EQ(epoch_line(0, -std::numeric_limits<double>::max(), {}).size(), 14U + 1 + 309 + 5);
}

TEST(RatioMetric, is_a_fraction_and_of_nothing_not_a_number) {
  EXPECT_EQ(ratio_metric("accuracy", 1, 3).value, 1.0 / 3);
  EXPECT_EQ(ratio_metric("accuracy", 1, 3).text, "33.3 % (1/3)");
  EXPECT_TRUE(std::isnan(ratio_metric("accuracy", 0, 0).value));
  EXPECT_EQ(ratio_metric("accuracy", 0, 0).text, "nan % (0/0)");
}

}  // namespace
}  // namespace ddp

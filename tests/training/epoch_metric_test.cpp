#include <cmath>
#include <limits>

#include <ddprun/training/epoch_metric.h>

#include "tests/support/catch.h"

namespace ddp {
namespace {

TEST_CASE("EpochLine: shows the loss and each metric as it wants to be shown") {
  CHECK(epoch_line(0, 1.23456, {}) == "epoch 0: loss 1.2346");
  CHECK(epoch_line(12, 0.5, {ratio_metric("accuracy", 46, 101), {"loss", 2}}) ==
        "epoch 12: loss 0.5000, validation accuracy 45.5 % (46/101), validation loss 2.0000");
}

TEST_CASE("EpochLine: holds any number") {
  CHECK(epoch_line(0, std::numeric_limits<double>::quiet_NaN(), {}) == "epoch 0: loss nan");
  CHECK(epoch_line(0, -std::numeric_limits<double>::max(), {}).size() == 14U + 1 + 309 + 5);
}

TEST_CASE("RatioMetric: is a fraction and of nothing not a number") {
  CHECK(ratio_metric("accuracy", 1, 3).value == 1.0 / 3);
  CHECK(ratio_metric("accuracy", 1, 3).text == "33.3 % (1/3)");
  CHECK(std::isnan(ratio_metric("accuracy", 0, 0).value));
  CHECK(ratio_metric("accuracy", 0, 0).text == "nan % (0/0)");
}

}  // namespace
}  // namespace ddp

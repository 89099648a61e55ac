// The results of an epoch, and its console line. Uses only the standard library.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ddp {

/// A result of validation.
struct EpochMetric {
  std::string name;    ///< such as "accuracy"
  double value = 0;    ///< the value for TensorBoard and the metrics file
  std::string text{};  ///< the text for the console; if empty, the value with four decimals is shown
};

/// Returns a metric with the value part / whole, or NaN if `whole` is 0. The console shows "45.5 % (46/101)".
EpochMetric ratio_metric(std::string name, int64_t part, int64_t whole);

/// Returns "epoch 3: loss 1.2345, validation accuracy 45.5 % (46/101)".
std::string epoch_line(int64_t epoch, double loss, const std::vector<EpochMetric>& metrics);

}  // namespace ddp

// The results of an epoch, and its console line. Standard library only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ddp {

/// A result of validation.
struct EpochMetric {
  std::string name;    ///< such as "accuracy"
  double value = 0;    ///< what TensorBoard and the metrics file get
  std::string text{};  ///< what the console shows; empty for the value with four decimals
};

/// `part` of `whole`: its value is part / whole, NaN of nothing; the console shows "45.5 % (46/101)".
EpochMetric ratio_metric(std::string name, int64_t part, int64_t whole);

/// "epoch 3: loss 1.2345, validation accuracy 45.5 % (46/101)".
std::string epoch_line(int64_t epoch, double loss, const std::vector<EpochMetric>& metrics);

}  // namespace ddp

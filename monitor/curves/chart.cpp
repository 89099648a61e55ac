#include "monitor/curves/chart.h"

#include <cmath>

namespace ddp::curves {

std::vector<double> smoothed(const std::vector<double>& values, double weight) {
  std::vector<double> result;
  double mean = 0;
  double bias = 1;
  for (const double value : values) {
    if (!std::isfinite(value)) {
      result.push_back(value);
      continue;
    }
    mean = weight * mean + (1 - weight) * value;
    bias *= weight;
    result.push_back(mean / (1 - bias));
  }
  return result;
}

}  // namespace ddp::curves

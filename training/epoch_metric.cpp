#include "ddprun/training/epoch_metric.h"

#include <cstdio>
#include <limits>
#include <utility>

namespace ddp {
namespace {

std::string with_decimals(double value, int decimals) {
  char text[400];  // the largest double has 309 digits before the decimal point
  std::snprintf(text, sizeof text, "%.*f", decimals, value);
  return text;
}

}  // namespace

EpochMetric ratio_metric(std::string name, int64_t part, int64_t whole) {
  const double value =
      whole == 0 ? std::numeric_limits<double>::quiet_NaN() : static_cast<double>(part) / static_cast<double>(whole);
  return {.name = std::move(name),
          .value = value,
          .text = with_decimals(100.0 * value, 1) + " % (" + std::to_string(part) + "/" + std::to_string(whole) + ")"};
}

std::string epoch_line(int64_t epoch, double loss, const std::vector<EpochMetric>& metrics) {
  std::string line = "epoch " + std::to_string(epoch) + ": loss " + with_decimals(loss, 4);
  for (const auto& metric : metrics) {
    line += ", validation " + metric.name + " " + (metric.text.empty() ? with_decimals(metric.value, 4) : metric.text);
  }
  return line;
}

}  // namespace ddp

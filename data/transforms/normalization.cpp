#include <cmath>
#include <cstddef>
#include <stdexcept>
#include <string>

#include "ddprun/data/image.h"

namespace ddp {

NormalizationTable normalization_table(const Normalization& normalization) {
  NormalizationTable table;
  for (size_t channel = 0; channel < table.size(); ++channel) {
    const float mean = normalization.mean[channel];
    const float stddev = normalization.stddev[channel];
    if (!std::isfinite(mean) || !std::isfinite(stddev) || stddev <= 0.0F) {
      throw std::invalid_argument("Invalid normalization of channel " + std::to_string(channel) + ": mean " +
                                  std::to_string(mean) + ", stddev " + std::to_string(stddev) +
                                  "; both should be finite and stddev above 0");
    }
    for (size_t value = 0; value < table[channel].size(); ++value) {
      table[channel][value] = (static_cast<float>(value) / 255.0F - mean) / stddev;
    }
  }
  return table;
}

}  // namespace ddp

// From 8-bit colour to the floats that a network trains on.
#pragma once

#include <array>
#include <cstdint>

namespace ddp {

/// Per channel: (value / 255 - mean) / stddev. The default leaves values in [0, 1].
struct Normalization {
  std::array<float, 3> mean = {0.0F, 0.0F, 0.0F};
  std::array<float, 3> stddev = {1.0F, 1.0F, 1.0F};
};

/// The result for every channel and 8-bit value, computed in float32 in that order, so that it has the same bits as
/// torchvision's ToTensor and Normalize.
using NormalizationTable = std::array<std::array<float, 256>, 3>;

/// Throws std::invalid_argument, naming the value, unless every mean is finite and every stddev finite and positive.
NormalizationTable normalization_table(const Normalization& normalization);

}  // namespace ddp

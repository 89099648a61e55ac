// The time of the slowest of many ranks, estimated from the measured times.
#pragma once

#include <cstdint>
#include <vector>

namespace ddp::timelines {

// The mean of the largest of `count` values that are drawn from `sorted` (ascending, not empty) with replacement. If
// there are more draws than half of the values, the largest values alone would decide. Then the result grows with the
// logarithm of the number of draws, as for distributions with exponential tails.
double expected_maximum(const std::vector<double>& sorted, std::int64_t count);

}  // namespace ddp::timelines

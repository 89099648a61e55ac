// Estimates the time of the slowest of many ranks from measured times.
#pragma once

#include <cstdint>
#include <vector>

namespace ddp::timelines {

// Returns the expected maximum of `count` values drawn with replacement from `sorted` (ascending, not empty). If there
// are more draws than half of the number of values, only the largest few values would determine the result. In that
// case the result grows with the logarithm of the number of draws, as for distributions with exponential tails.
double expected_maximum(const std::vector<double>& sorted, std::int64_t count);

}  // namespace ddp::timelines

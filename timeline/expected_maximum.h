// What the slowest of many ranks takes, from the times that were measured.
#pragma once

#include <cstdint>
#include <vector>

namespace ddp::timelines {

// The mean of the largest of `count` values that are drawn from `sorted` (ascending, not empty), each time from all of
// it. With more draws than half as many as there are values, where the largest of these would decide alone, it grows
// with the logarithm of the number, as that of distributions with exponential tails does.
double expected_maximum(const std::vector<double>& sorted, std::int64_t count);

}  // namespace ddp::timelines

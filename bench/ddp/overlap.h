// Measures how much of the communication overlaps with backward.
#pragma once

#include <cstdint>
#include <string>

#include <ddprun/comm/process_group.h>

namespace bench {

/// Trains a stack of linear layers with an automatic bucket size. In the same run, measures the parts of a step:
/// forward, optimizer, backward without communication, the all-reduces of its buckets back to back, and the time until
/// backward has filled the first bucket. Returns "<step> <forward> <optimizer> <backward> <communication> <first
/// bucket> <bucket bytes>"; times are medians over `steps` in seconds. Every rank must call it.
std::string measure_overlap(const ddp::GroupHandle& group, int64_t steps);

}  // namespace bench

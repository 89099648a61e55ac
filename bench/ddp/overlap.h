// How much communication overlaps with backward.
#pragma once

#include <cstdint>
#include <string>

#include <ddprun/comm/process_group.h>

namespace bench {

/// Trains a stack of linear layers with an automatic bucket size and measures, in the same run, the parts of a step:
/// forward, optimizer, backward without communication, the all-reduces of its buckets back to back, and the time until
/// backward has the first bucket. Returns "<step> <forward> <optimizer> <backward> <communication> <first bucket>
/// <bucket bytes>", times in seconds, medians over `steps`. Every rank must call it.
std::string measure_overlap(const ddp::GroupHandle& group, int64_t steps);

}  // namespace bench

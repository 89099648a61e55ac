// N ranks against one process that accumulates N micro-batches: the same training.
#pragma once

#include <cstdint>
#include <string>

#include <ddprun/comm/process_group.h>

namespace bench {

/// Trains a LeNet for `steps` steps on a batch of 16 per rank, in DistributedDataParallel and then in this process
/// alone over all ranks' batches one after the other. Returns "<seconds per step> <seconds per step alone> <relative
/// difference of the weights>", times as medians. Every rank must call it.
std::string measure_accumulation(const ddp::GroupHandle& group, int64_t steps);

}  // namespace bench

// Compares N ranks with one process that accumulates N micro-batches, which is the same training.
#pragma once

#include <cstdint>
#include <string>

#include <ddprun/comm/process_group.h>

namespace bench {

/// Trains a LeNet for `steps` steps on a batch of 16 per rank, first with DistributedDataParallel and then in this
/// process alone on the batches of all ranks in sequence. Returns "<seconds per step> <seconds per step alone>
/// <relative difference of the weights>"; the times are medians. Every rank must call it.
std::string measure_accumulation(const ddp::GroupHandle& group, int64_t steps);

}  // namespace bench

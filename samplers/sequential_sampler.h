// A dataset in its own order, nothing repeated and nothing left out: for exact evaluation over several ranks.
#pragma once

#include <cstdint>

#include "samplers/epoch_sampler.h"

namespace ddp {

struct SequentialSamplerOptions {
  int num_replicas = 1;  ///< number of ranks that share the dataset
  int rank = 0;          ///< this process's rank: 0 … num_replicas-1
};

/// Rank r gets samples r, r + num_replicas, …, so each sample belongs to exactly one rank and sums over the ranks are
/// exact. (A DistributedSampler repeats samples to make the shares equal, which counts those twice.) The first ranks
/// may have one sample more: don't call collectives once per batch. On one rank it is
/// torch.utils.data.SequentialSampler.
class SequentialSampler : public EpochSampler {
 public:
  /// Throws std::invalid_argument, naming the values, for a negative size or a rank outside num_replicas.
  explicit SequentialSampler(int64_t dataset_size, const SequentialSamplerOptions& options = {});
};

}  // namespace ddp

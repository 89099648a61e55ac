// Random samples, as many per epoch as wanted, with or without replacement, shared by the ranks.
#pragma once

#include <cstdint>
#include <optional>

#include "samplers/epoch_sampler.h"

namespace ddp {

struct RandomSamplerOptions {
  bool replacement = false;                 ///< a sample may come again before all others have come
  std::optional<int64_t> num_samples = {};  ///< per epoch, over all ranks; default: the dataset's size
  int num_replicas = 1;                     ///< number of ranks that share the samples
  int rank = 0;                             ///< this process's rank: 0 … num_replicas-1
  uint64_t seed = 0;                        ///< must be equal on all ranks; the order is drawn with seed + epoch
  bool drop_last = false;  ///< leave the tail out instead of repeating samples where ranks do not divide
};

/// On one rank the order of torch.utils.data.RandomSampler with a generator seeded with seed + epoch; several ranks
/// take turns in that order. Which sample comes when does not depend on the number of ranks.
class RandomSampler : public EpochSampler {
 public:
  /// Throws std::invalid_argument, naming the values, for negative sizes, for samples out of an empty dataset, or a
  /// rank outside num_replicas.
  explicit RandomSampler(int64_t dataset_size, const RandomSamplerOptions& options = {});
};

}  // namespace ddp

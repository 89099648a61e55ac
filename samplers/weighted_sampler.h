// Samples with given probabilities, shared by the ranks: against unbalanced classes, for example.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "samplers/epoch_sampler.h"

namespace ddp {

struct WeightedSamplerOptions {
  bool replacement = true;                  ///< false: no sample twice in an epoch, on no rank
  std::optional<int64_t> num_samples = {};  ///< per epoch, over all ranks; default: as many as weights
  int num_replicas = 1;                     ///< number of ranks that share the samples
  int rank = 0;                             ///< this process's rank: 0 … num_replicas-1
  uint64_t seed = 0;                        ///< must be equal on all ranks; samples are drawn with seed + epoch
  bool drop_last = false;  ///< leave the tail out instead of repeating samples where ranks do not divide
};

/// On one rank the order of torch.utils.data.WeightedRandomSampler with a generator seeded with seed + epoch; several
/// ranks draw the same samples and take turns in them, so that the probabilities hold for the whole job.
class WeightedSampler : public EpochSampler {
 public:
  /// `weights[i]` is proportional to the probability of sample i. Throws std::invalid_argument, naming the value, for a
  /// weight that is negative or not finite, when all are 0, for more than 2^24 weights (the limit of
  /// torch.multinomial), and without replacement for more samples than positive weights.
  explicit WeightedSampler(const std::vector<double>& weights, const WeightedSamplerOptions& options = {});
};

}  // namespace ddp

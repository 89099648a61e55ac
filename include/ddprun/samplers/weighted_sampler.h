// Random samples with given probabilities, shared by the ranks, for example for unbalanced classes.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <ddprun/base/rank_info.h>
#include <ddprun/detail/samplers/replica_option.h>
#include <ddprun/samplers/epoch_sampler.h>

namespace ddp {

/// Settings of a WeightedSampler, all optional.
struct WeightedSamplerOptions {
  bool replacement = true;                  ///< false: no sample occurs twice in an epoch, over all ranks
  std::optional<int64_t> num_samples = {};  ///< per epoch, over all ranks; default: as many as weights
  std::optional<int> num_replicas{};        ///< number of ranks that share the samples
  std::optional<int> rank{};                ///< the rank of this process: 0 … num_replicas-1
  uint64_t seed = 0;                        ///< must be equal on all ranks; samples are drawn with seed + epoch
  bool drop_last = false;  ///< if the number of ranks does not divide the samples: leaves out the last ones instead of
                           ///< repeating some
};

/// On one rank, the order is that of torch.utils.data.WeightedRandomSampler with a generator seeded with seed + epoch.
/// Several ranks draw the same samples and use them in turn, so that the probabilities are correct for the whole job.
class WeightedSampler : public EpochSampler {
 public:
  /// `weights[i]` is proportional to the probability of sample i. Throws std::invalid_argument, naming the value, for a
  /// weight that is negative or not finite, if all weights are 0, for more than 2^24 weights (the limit of
  /// torch.multinomial), for more samples than positive weights without replacement, and in a job of several ranks if
  /// neither `.num_replicas` nor `.rank` was given (see require_replica()).
  explicit WeightedSampler(const std::vector<double>& weights, const WeightedSamplerOptions& options = {});

  /// The same for a rank of a ProcessGroup, GroupHandle or any other type with rank() and size(). Throws as above, and
  /// std::invalid_argument on every rank when the options contain a rank too.
  template <RankedGroup Group>
  WeightedSampler(const std::vector<double>& weights, const Group& group, const WeightedSamplerOptions& options = {})
      : WeightedSampler(weights, with_replica("WeightedSampler", options, group)) {}

 private:
  WeightedSampler(const std::vector<double>& weights, const WeightedSamplerOptions& options, const Replica& replica);
};

}  // namespace ddp

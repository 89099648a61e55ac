// Random samples with or without replacement, shared by the ranks. The number of samples per epoch can be chosen.
#pragma once

#include <cstdint>
#include <optional>

#include <ddprun/base/rank_info.h>
#include <ddprun/detail/samplers/replica_option.h>
#include <ddprun/samplers/epoch_sampler.h>

namespace ddp {

/// Settings of a RandomSampler, all optional.
struct RandomSamplerOptions {
  bool replacement = false;                 ///< whether a sample may repeat before all others were drawn
  std::optional<int64_t> num_samples = {};  ///< per epoch, over all ranks; default: the dataset's size
  std::optional<int> num_replicas{};        ///< number of ranks that share the samples
  std::optional<int> rank{};                ///< the rank of this process: 0 … num_replicas-1
  uint64_t seed = 0;                        ///< must be equal on all ranks; the order is drawn with seed + epoch
  bool drop_last = false;  ///< if the number of ranks does not divide the samples: leaves out the last ones instead of
                           ///< repeating some
};

/// On one rank, the order is that of torch.utils.data.RandomSampler with a generator seeded with seed + epoch. Several
/// ranks use the samples of that order in turn, so the order over all ranks does not depend on their number.
class RandomSampler : public EpochSampler {
 public:
  /// For one process, or with `.num_replicas` and `.rank`. Throws std::invalid_argument, naming the values, for
  /// negative sizes, for samples from an empty dataset, for a rank outside num_replicas, and in a job of several ranks
  /// if neither was given (see require_replica()).
  explicit RandomSampler(int64_t dataset_size, const RandomSamplerOptions& options = {});

  /// The same for a rank of a ProcessGroup, GroupHandle or any other type with rank() and size(). Throws as above, and
  /// std::invalid_argument on every rank when the options contain a rank too.
  template <RankedGroup Group>
  RandomSampler(int64_t dataset_size, const Group& group, const RandomSamplerOptions& options = {})
      : RandomSampler(dataset_size, with_replica("RandomSampler", options, group)) {}

 private:
  RandomSampler(int64_t dataset_size, const RandomSamplerOptions& options, const Replica& replica);
};

}  // namespace ddp

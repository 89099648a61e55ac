// The samples of a dataset in order, each exactly once: for exact evaluation over several ranks.
#pragma once

#include <cstdint>
#include <optional>

#include <ddprun/base/rank_info.h>
#include <ddprun/detail/samplers/replica_option.h>
#include <ddprun/samplers/epoch_sampler.h>

namespace ddp {

/// Settings of a SequentialSampler, all optional.
struct SequentialSamplerOptions {
  std::optional<int> num_replicas{};  ///< number of ranks that share the dataset
  std::optional<int> rank{};          ///< the rank of this process: 0 … num_replicas-1
};

/// Rank r gets samples r, r + num_replicas, …, so each sample belongs to exactly one rank and sums over the ranks are
/// exact. (A DistributedSampler repeats samples to make the shares equal, which counts those twice.) The first ranks
/// may have one sample more, so do not call a collective for each batch. On one rank it is
/// torch.utils.data.SequentialSampler.
class SequentialSampler : public EpochSampler {
 public:
  /// For one process, or with `.num_replicas` and `.rank`. Throws std::invalid_argument, naming the values, for a
  /// negative size, a rank outside num_replicas, and in a job of several ranks when neither was given (see
  /// require_replica()).
  explicit SequentialSampler(int64_t dataset_size, const SequentialSamplerOptions& options = {});

  /// The same for a rank of a ProcessGroup, GroupHandle or any other type with rank() and size(). Throws as above, and
  /// std::invalid_argument on every rank when the options contain a rank too.
  template <RankedGroup Group>
  SequentialSampler(int64_t dataset_size, const Group& group, const SequentialSamplerOptions& options = {})
      : SequentialSampler(dataset_size, with_replica("SequentialSampler", options, group)) {}

 private:
  SequentialSampler(int64_t dataset_size, const SequentialSamplerOptions& options, const Replica& replica);
};

}  // namespace ddp

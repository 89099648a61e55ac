// Splits a dataset over the ranks of a job, in exactly the order of Python's torch.utils.data.DistributedSampler.
#pragma once

#include <cstdint>
#include <optional>

#include <ddprun/base/rank_info.h>
#include <ddprun/detail/samplers/replica_option.h>
#include <ddprun/samplers/epoch_sampler.h>

namespace ddp {

/// Settings of a DistributedSampler, all optional.
struct DistributedSamplerOptions {
  std::optional<int> num_replicas{};  ///< number of ranks that share the dataset
  std::optional<int> rank{};          ///< the rank of this process: 0 … num_replicas-1
  bool shuffle = true;                ///< a new order per epoch, equal on all ranks; false keeps the dataset's order
  uint64_t seed = 0;                  ///< must be equal on all ranks; the order is drawn with seed + epoch
  bool drop_last = false;             ///< if the number of ranks does not divide the size: leaves out the last samples
                                      ///< instead of repeating some
};

/// Gives every rank the same number of samples. EpochSampler has its functions.
///
///     ddp::DistributedSampler sampler(dataset.size(), group, {.seed = 0});
///     auto loader = torch::data::make_data_loader(dataset, sampler, 128);
///     for (int64_t epoch = 0; epoch < 10; ++epoch) {
///       sampler.set_epoch(epoch);
///       for (auto& batch : *loader) { … }
///     }
class DistributedSampler : public EpochSampler {
 public:
  /// For one process, or with `.num_replicas` and `.rank`. Throws std::invalid_argument, naming the values, for a
  /// negative size, a rank outside num_replicas, and in a job of several ranks when neither was given (see
  /// require_replica()).
  explicit DistributedSampler(int64_t dataset_size, const DistributedSamplerOptions& options = {});

  /// The same for a rank of a ProcessGroup, GroupHandle or any other type with rank() and size(). Throws as above, and
  /// std::invalid_argument on every rank when the options contain a rank too.
  template <RankedGroup Group>
  DistributedSampler(int64_t dataset_size, const Group& group, const DistributedSamplerOptions& options = {})
      : DistributedSampler(dataset_size, with_replica("DistributedSampler", options, group)) {}

 private:
  DistributedSampler(int64_t dataset_size, const DistributedSamplerOptions& options, const Replica& replica);
};

}  // namespace ddp

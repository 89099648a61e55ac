// Splits a dataset over the ranks of a job, in exactly the order of Python's torch.utils.data.DistributedSampler.
#pragma once

#include <cstdint>

#include "samplers/epoch_sampler.h"

namespace ddp {

struct DistributedSamplerOptions {
  int num_replicas = 1;    ///< number of ranks that share the dataset
  int rank = 0;            ///< this process's rank: 0 … num_replicas-1
  bool shuffle = true;     ///< a new order per epoch, equal on all ranks; false keeps the dataset's order
  uint64_t seed = 0;       ///< must be equal on all ranks; the order is drawn with seed + epoch
  bool drop_last = false;  ///< leave the tail out instead of repeating samples where the ranks do not divide
};

/// Every rank gets as many samples; see EpochSampler for what it can do.
///
///     ddp::DistributedSampler sampler(dataset.size(), {.num_replicas = group.size(), .rank = group.rank()});
///     auto loader = torch::data::make_data_loader(dataset, sampler, 128);
///     for (int64_t epoch = 0; epoch < 10; ++epoch) {
///       sampler.set_epoch(epoch);
///       for (auto& batch : *loader) { … }
///     }
class DistributedSampler : public EpochSampler {
 public:
  /// Throws std::invalid_argument, naming the values, for a negative size or a rank outside num_replicas.
  explicit DistributedSampler(int64_t dataset_size, const DistributedSamplerOptions& options = {});
};

}  // namespace ddp

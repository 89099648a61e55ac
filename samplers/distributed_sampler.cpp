#include "ddprun/samplers/distributed_sampler.h"

#include <ddprun/samplers/shard.h>

namespace ddp {

DistributedSampler::DistributedSampler(int64_t dataset_size, const DistributedSamplerOptions& options)
    : DistributedSampler(dataset_size, options,
                         require_replica("DistributedSampler", options.num_replicas, options.rank)) {}

DistributedSampler::DistributedSampler(int64_t dataset_size, const DistributedSamplerOptions& options,
                                       const Replica& replica)
    : EpochSampler({.name = "DistributedSampler",
                    .length = dataset_size,
                    .can_change_length = true,
                    .num_replicas = replica.num_replicas,
                    .rank = replica.rank,
                    .tail = options.drop_last ? Tail::kDrop : Tail::kRepeat,
                    .seed = options.seed,
                    .order = options.shuffle ? permutation : [](int64_t n, uint64_t) { return ascending(n); }}) {}

}  // namespace ddp

#include "samplers/distributed_sampler.h"

#include "samplers/permutation.h"

namespace ddp {

DistributedSampler::DistributedSampler(int64_t dataset_size, const DistributedSamplerOptions& options)
    : EpochSampler({.name = "DistributedSampler",
                    .length = dataset_size,
                    .can_change_length = true,
                    .num_replicas = options.num_replicas,
                    .rank = options.rank,
                    .tail = options.drop_last ? Tail::kDrop : Tail::kRepeat,
                    .seed = options.seed,
                    .order = options.shuffle ? permutation : [](int64_t n, uint64_t) { return ascending(n); }}) {}

}  // namespace ddp

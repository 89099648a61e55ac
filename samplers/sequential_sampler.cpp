#include "ddprun/samplers/sequential_sampler.h"

#include <ddprun/samplers/shard.h>

namespace ddp {

SequentialSampler::SequentialSampler(int64_t dataset_size, const SequentialSamplerOptions& options)
    : SequentialSampler(dataset_size, options,
                        require_replica("SequentialSampler", options.num_replicas, options.rank)) {}

SequentialSampler::SequentialSampler(int64_t dataset_size, const SequentialSamplerOptions& /*options*/,
                                     const Replica& replica)
    : EpochSampler({.name = "SequentialSampler",
                    .length = dataset_size,
                    .can_change_length = true,
                    .num_replicas = replica.num_replicas,
                    .rank = replica.rank,
                    .tail = Tail::kUneven,
                    .order = [](int64_t n, uint64_t) { return ascending(n); }}) {}

}  // namespace ddp

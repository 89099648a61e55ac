#include "samplers/sequential_sampler.h"

#include "samplers/permutation.h"

namespace ddp {

SequentialSampler::SequentialSampler(int64_t dataset_size, const SequentialSamplerOptions& options)
    : EpochSampler({.name = "SequentialSampler",
                    .length = dataset_size,
                    .can_change_length = true,
                    .num_replicas = options.num_replicas,
                    .rank = options.rank,
                    .tail = Tail::kUneven,
                    .order = [](int64_t n, uint64_t) { return ascending(n); }}) {}

}  // namespace ddp

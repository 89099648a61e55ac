#include "ddprun/samplers/random_sampler.h"

#include <stdexcept>
#include <string>

#include <ddprun/samplers/shard.h>

namespace ddp {
namespace {

int64_t checked_size(int64_t dataset_size, int64_t num_samples) {
  if (dataset_size < 0 || (dataset_size == 0 && num_samples > 0)) {
    throw std::invalid_argument("RandomSampler: cannot draw " + std::to_string(num_samples) +
                                " samples from a dataset of size " + std::to_string(dataset_size));
  }
  return dataset_size;
}

}  // namespace

RandomSampler::RandomSampler(int64_t dataset_size, const RandomSamplerOptions& options)
    : RandomSampler(dataset_size, options, require_replica("RandomSampler", options.num_replicas, options.rank)) {}

RandomSampler::RandomSampler(int64_t dataset_size, const RandomSamplerOptions& options, const Replica& replica)
    : EpochSampler({.name = "RandomSampler",
                    .length = options.num_samples.value_or(dataset_size),
                    .num_replicas = replica.num_replicas,
                    .rank = replica.rank,
                    .tail = options.drop_last ? Tail::kDrop : Tail::kRepeat,
                    .seed = options.seed,
                    .order = [n = checked_size(dataset_size, options.num_samples.value_or(dataset_size)),
                              draw = options.replacement ? random_draws : random_order](int64_t length, uint64_t seed) {
                      return draw(n, length, seed);
                    }}) {}

}  // namespace ddp

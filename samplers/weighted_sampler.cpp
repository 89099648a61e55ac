#include "ddprun/samplers/weighted_sampler.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/multinomial.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

namespace ddp {
namespace {

constexpr size_t kMaxWeights = size_t{1} << 24;

void check(const std::vector<double>& weights, bool replacement, int64_t num_samples) {
  int64_t positive = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (!std::isfinite(weights[i]) || weights[i] < 0) {
      throw std::invalid_argument("WeightedSampler: weight " + std::to_string(i) + " is " + std::to_string(weights[i]) +
                                  "; expected a finite number, 0 or more");
    }
    if (weights[i] > 0) ++positive;
  }
  if (weights.size() > kMaxWeights || num_samples < 0) {
    throw std::invalid_argument(
        "WeightedSampler: expected at most 2^24 weights and no negative number of samples, got " +
        std::to_string(weights.size()) + " weights and " + std::to_string(num_samples) + " samples");
  }
  const int64_t most = replacement && positive > 0 ? num_samples : positive;
  if (num_samples > most) {
    throw std::invalid_argument("WeightedSampler: cannot draw " + std::to_string(num_samples) + " samples " +
                                (replacement ? "with" : "without") + " replacement: " + std::to_string(positive) +
                                " weights are positive");
  }
}

std::function<std::vector<int64_t>(int64_t, uint64_t)> order_of(const std::vector<double>& weights, bool replacement,
                                                                int64_t num_samples) {
  check(weights, replacement, num_samples);
  at::Tensor table = at::empty({static_cast<int64_t>(weights.size())}, at::kDouble);
  std::copy(weights.begin(), weights.end(), table.mutable_data_ptr<double>());
  return [table, replacement](int64_t length, uint64_t seed) {
    if (length == 0) return std::vector<int64_t>();  // multinomial refuses 0 samples
    const at::Tensor drawn = at::multinomial(table, length, replacement, at::detail::createCPUGenerator(seed));
    const int64_t* data = drawn.const_data_ptr<int64_t>();
    return std::vector<int64_t>(data, data + length);
  };
}

int64_t length_of(const std::vector<double>& weights, const WeightedSamplerOptions& options) {
  return options.num_samples.value_or(static_cast<int64_t>(weights.size()));
}

}  // namespace

WeightedSampler::WeightedSampler(const std::vector<double>& weights, const WeightedSamplerOptions& options)
    : WeightedSampler(weights, options, require_replica("WeightedSampler", options.num_replicas, options.rank)) {}

WeightedSampler::WeightedSampler(const std::vector<double>& weights, const WeightedSamplerOptions& options,
                                 const Replica& replica)
    : EpochSampler({.name = "WeightedSampler",
                    .length = length_of(weights, options),
                    .num_replicas = replica.num_replicas,
                    .rank = replica.rank,
                    .tail = options.drop_last ? Tail::kDrop : Tail::kRepeat,
                    .seed = options.seed,
                    .order = order_of(weights, options.replacement, length_of(weights, options))}) {}

}  // namespace ddp

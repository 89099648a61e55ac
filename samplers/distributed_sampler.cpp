#include "samplers/distributed_sampler.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/randperm.h>
#include <ATen/ops/tensor.h>
#include <torch/serialize/archive.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>

#include "samplers/shard.h"

namespace ddp {
namespace {

/// The permutation that torch.randperm(n, generator=g) gives in Python after g.manual_seed(seed).
std::vector<int64_t> permutation(int64_t n, uint64_t seed) {
  const at::Tensor order = at::randperm(n, at::detail::createCPUGenerator(seed), at::kLong);
  const int64_t* data = order.const_data_ptr<int64_t>();
  return {data, data + n};
}

std::vector<int64_t> ascending(int64_t n) {
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), int64_t{0});
  return order;
}

void write(torch::serialize::OutputArchive& archive, const std::string& key, int64_t value) {
  archive.write(key, at::tensor(value, at::kLong), /*is_buffer=*/true);
}

int64_t read(torch::serialize::InputArchive& archive, const std::string& key) {
  at::Tensor value;
  archive.read(key, value, /*is_buffer=*/true);
  if (!value.defined() || value.scalar_type() != at::kLong || value.numel() != 1) {
    throw std::invalid_argument("DistributedSampler state: expected one int64 under \"" + key + "\"");
  }
  return value.item<int64_t>();
}

}  // namespace

struct DistributedSampler::State {
  int64_t dataset_size = 0;
  DistributedSamplerOptions options;
  int64_t epoch = 0;
  /// Drawn by reset() or by the first next(), so that a set_epoch() right after the constructor still counts.
  std::optional<std::vector<int64_t>> order;
  size_t position = 0;
};

DistributedSampler::DistributedSampler(int64_t dataset_size, DistributedSamplerOptions options)
    : state_(std::make_shared<State>()) {
  check_replica(options.num_replicas, options.rank);
  if (dataset_size < 0) {
    throw std::invalid_argument("Invalid dataset size " + std::to_string(dataset_size) +
                                ", the number of samples cannot be negative");
  }
  state_->dataset_size = dataset_size;
  state_->options = options;
}

void DistributedSampler::set_epoch(int64_t epoch) {
  state_->epoch = epoch;
}

int64_t DistributedSampler::epoch() const {
  return state_->epoch;
}

int64_t DistributedSampler::size() const {
  return shard_size(state_->dataset_size, state_->options.num_replicas, state_->options.drop_last);
}

std::vector<int64_t> DistributedSampler::indices() const {
  const DistributedSamplerOptions& options = state_->options;
  // Unsigned, so a seed near the end of the range wraps around as Python's generator seeds do.
  const uint64_t seed = options.seed + static_cast<uint64_t>(state_->epoch);
  const std::vector<int64_t> order =
      options.shuffle ? permutation(state_->dataset_size, seed) : ascending(state_->dataset_size);
  return shard(order, options.num_replicas, options.rank, options.drop_last);
}

void DistributedSampler::reset(std::optional<size_t> new_size) {
  if (new_size.has_value()) {
    if (*new_size > static_cast<size_t>(std::numeric_limits<int64_t>::max())) {
      throw std::invalid_argument("Invalid dataset size " + std::to_string(*new_size) + ", it must fit in int64");
    }
    state_->dataset_size = static_cast<int64_t>(*new_size);
  }
  state_->order = indices();
  state_->position = 0;
}

std::optional<std::vector<size_t>> DistributedSampler::next(size_t batch_size) {
  if (!state_->order.has_value()) reset();
  const std::span<const int64_t> left = std::span<const int64_t>(*state_->order).subspan(state_->position);
  if (left.empty()) return std::nullopt;
  const auto batch = left.first(std::min(batch_size, left.size()));
  state_->position += batch.size();
  return std::vector<size_t>(batch.begin(), batch.end());
}

void DistributedSampler::save(torch::serialize::OutputArchive& archive) const {
  write(archive, "seed", static_cast<int64_t>(state_->options.seed));
  write(archive, "epoch", state_->epoch);
  write(archive, "num_replicas", state_->options.num_replicas);
  write(archive, "position", static_cast<int64_t>(state_->position));
}

void DistributedSampler::load(torch::serialize::InputArchive& archive) {
  const int64_t seed = read(archive, "seed");
  const int64_t epoch = read(archive, "epoch");
  const int64_t num_replicas = read(archive, "num_replicas");
  const int64_t position = read(archive, "position");
  if (position < 0 || position > size()) {
    throw std::invalid_argument("DistributedSampler state: " + std::to_string(position) +
                                " samples of the epoch are done, but this rank has " + std::to_string(size()) +
                                ": it was saved for another dataset or number of ranks");
  }
  if (position != 0 && num_replicas != state_->options.num_replicas) {
    throw std::invalid_argument("DistributedSampler state: saved in mid-epoch by " + std::to_string(num_replicas) +
                                " ranks, loaded by " + std::to_string(state_->options.num_replicas) +
                                ": use the same number of ranks, or continue with the next epoch");
  }
  state_->options.seed = static_cast<uint64_t>(seed);
  state_->epoch = epoch;
  reset();
  state_->position = static_cast<size_t>(position);
}

}  // namespace ddp

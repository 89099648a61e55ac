#include "ddprun/samplers/epoch_sampler.h"

#include <ATen/ops/tensor.h>
#include <torch/serialize/archive.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>

namespace ddp {
namespace {

void write(torch::serialize::OutputArchive& archive, const std::string& key, int64_t value) {
  archive.write(key, at::tensor(value, at::kLong), /*is_buffer=*/true);
}

int64_t read(torch::serialize::InputArchive& archive, const std::string& key) {
  at::Tensor value;
  archive.read(key, value, /*is_buffer=*/true);
  if (!value.defined() || value.scalar_type() != at::kLong || value.numel() != 1) {
    throw std::invalid_argument("Sampler state: expected one int64 under \"" + key + "\"");
  }
  return value.item<int64_t>();
}

}  // namespace

struct EpochSampler::State {
  Kind kind;
  int64_t epoch = 0;     // the epoch that the next reset() begins
  int64_t consumed = 0;  // samples already used in `epoch`, if load_state() set it
  int64_t loads = 0;     // number of calls of load_state()

  /// The indices that next() returns. They are computed by reset() or by the first next(), so that a set_epoch()
  /// directly after the constructor still has an effect. Has no value if a pass returns the samples itself and only
  /// changes `position`.
  std::optional<std::vector<int64_t>> order{};
  size_t position = 0;
  int64_t order_epoch = 0;
  int64_t order_consumed = 0;  // samples used before the first entry of `order`

  /// Returns this rank's share of the epoch `of_epoch`, in which `already_consumed` samples were used before. Throws
  /// std::logic_error if a derived sampler returns an invalid order.
  std::vector<int64_t> share(int64_t of_epoch, int64_t already_consumed) const {
    // The sum is unsigned, so that a seed near the end of the range wraps around, as the seeds of Python's generator
    // do.
    const uint64_t seed = kind.seed + static_cast<uint64_t>(of_epoch);
    const auto whole = kind.order(kind.length, seed);
    if (std::ssize(whole) != kind.length) {
      throw std::logic_error(std::string(kind.name) + ": the order of an epoch has " + std::to_string(whole.size()) +
                             " samples, but the sampler was made for " + std::to_string(kind.length));
    }
    const auto negative = std::ranges::find_if(whole, [](int64_t sample) { return sample < 0; });
    if (negative != whole.end()) {
      throw std::logic_error(std::string(kind.name) + ": the order of an epoch has sample " +
                             std::to_string(*negative) + ", but the first one is 0");
    }
    return shard(whole, sharding(already_consumed));
  }

  Sharding sharding(int64_t already_consumed) const {
    return {.num_replicas = kind.num_replicas, .rank = kind.rank, .tail = kind.tail, .consumed = already_consumed};
  }
};

EpochSampler::EpochSampler(Kind kind) {
  check_replica(kind.num_replicas, kind.rank);
  if (kind.length < 0) {
    throw std::invalid_argument("Invalid dataset size " + std::to_string(kind.length) +
                                ", the number of samples cannot be negative");
  }
  state_ = std::make_shared<State>(State{.kind = std::move(kind)});
}

void EpochSampler::set_epoch(int64_t epoch) {
  if (epoch != state_->epoch) state_->consumed = 0;
  state_->epoch = epoch;
}

int64_t EpochSampler::epoch() const {
  return state_->epoch;
}

int64_t EpochSampler::size() const {
  return shard_size(state_->kind.length, state_->sharding(state_->consumed));
}

std::vector<int64_t> EpochSampler::indices() const {
  return state_->share(state_->epoch, state_->consumed);
}

std::vector<int64_t> EpochSampler::share_of_epoch(int64_t epoch) const {
  return state_->share(epoch, 0);
}

void EpochSampler::reset(std::optional<size_t> new_size) {
  Kind& kind = state_->kind;
  if (new_size.has_value() && *new_size != static_cast<size_t>(kind.length)) {
    if (*new_size > static_cast<size_t>(std::numeric_limits<int64_t>::max())) {
      throw std::invalid_argument("Invalid dataset size " + std::to_string(*new_size) + ", it must fit in int64");
    }
    if (!kind.can_change_length) {
      throw std::invalid_argument(std::string(kind.name) + ": made for " + std::to_string(kind.length) +
                                  " samples per epoch, which cannot be changed to " + std::to_string(*new_size));
    }
    kind.length = static_cast<int64_t>(*new_size);
    state_->consumed = 0;
  }
  state_->order = indices();
  state_->position = 0;
  state_->order_epoch = state_->epoch;
  state_->order_consumed = std::exchange(state_->consumed, 0);
}

SamplerPass EpochSampler::begin_pass() {
  reset();
  return {state_, std::exchange(*state_->order, {})};
}

SamplerPass::SamplerPass(std::shared_ptr<EpochSampler::State> state, std::vector<int64_t> indices)
    : state_(std::move(state)),
      indices_(std::move(indices)),
      seed_(state_->kind.seed),
      epoch_(state_->order_epoch),
      consumed_(state_->order_consumed),
      loads_(state_->loads) {}

void SamplerPass::used(int64_t samples) const {
  if (samples < 0 || samples > std::ssize(indices_)) {
    throw std::invalid_argument(std::string(state_->kind.name) + ": this pass has " + std::to_string(indices_.size()) +
                                " samples, so it cannot have used " + std::to_string(samples));
  }
  if (std::exchange(loads_, state_->loads) != state_->loads) {
    // A state was loaded during this pass, but the pass continues. The next pass must not begin at the position of that
    // state.
    state_->kind.seed = seed_;
    state_->epoch = epoch_;
    state_->consumed = 0;
  }
  if (!state_->order || state_->order_epoch != epoch_ || state_->order_consumed != consumed_) state_->order.emplace();
  state_->order_epoch = epoch_;
  state_->order_consumed = consumed_;
  state_->position = static_cast<size_t>(samples);
}

std::optional<std::vector<size_t>> EpochSampler::next(size_t batch_size) {
  if (!state_->order.has_value()) reset();
  const std::span<const int64_t> order(*state_->order);
  const auto left = order.subspan(std::min(state_->position, order.size()));
  if (left.empty()) return std::nullopt;
  const auto batch = left.first(std::min(batch_size, left.size()));
  state_->position += batch.size();
  return std::vector<size_t>(batch.begin(), batch.end());
}

SamplerState EpochSampler::state() const {
  return state_after(state_->order.has_value() ? static_cast<int64_t>(state_->position) : 0);
}

SamplerState EpochSampler::state_after(int64_t samples) const {
  const Kind& kind = state_->kind;
  const bool has_begun = state_->order.has_value();
  const int64_t before = has_begun ? state_->order_consumed : state_->consumed;
  const int64_t most = shard_size(kind.length, state_->sharding(before));
  if (samples < 0 || samples > most) {
    throw std::invalid_argument(std::string(kind.name) + ": rank " + std::to_string(kind.rank) + " has " +
                                std::to_string(most) + " samples, so it cannot have used " + std::to_string(samples));
  }
  return {.seed = kind.seed,
          .epoch = has_begun ? state_->order_epoch : state_->epoch,
          .consumed = before + samples * kind.num_replicas,
          .length = kind.length};
}

void EpochSampler::load_state(const SamplerState& state) {
  Kind& kind = state_->kind;
  if (state.consumed < 0 || (state.consumed > 0 && state.length != kind.length)) {
    throw std::invalid_argument(std::string(kind.name) + " state: saved after " + std::to_string(state.consumed) +
                                " of " + std::to_string(state.length) + " samples of an epoch, but an epoch has " +
                                std::to_string(kind.length) + " here: use the dataset of the saved run");
  }
  kind.seed = state.seed;
  state_->epoch = state.epoch;
  state_->consumed = state.consumed;
  ++state_->loads;
  state_->order.reset();
  state_->position = 0;
}

std::string EpochSampler::save() const {
  return to_json(state());
}

void EpochSampler::load(const std::string& text) {
  if (!text.starts_with("PK")) return load_state(sampler_state_from_json(text));
  torch::serialize::InputArchive archive;
  archive.load_from(text.data(), text.size());
  load(archive);
}

void EpochSampler::save(torch::serialize::OutputArchive& archive) const {
  const SamplerState now = state();
  write(archive, "seed", static_cast<int64_t>(now.seed));
  write(archive, "epoch", now.epoch);
  write(archive, "consumed", now.consumed);
  write(archive, "length", now.length);
}

void EpochSampler::load(torch::serialize::InputArchive& archive) {
  load_state({.seed = static_cast<uint64_t>(read(archive, "seed")),
              .epoch = read(archive, "epoch"),
              .consumed = read(archive, "consumed"),
              .length = read(archive, "length")});
}

}  // namespace ddp

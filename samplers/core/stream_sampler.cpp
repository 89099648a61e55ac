#include "ddprun/samplers/stream_sampler.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace ddp {
namespace {

constexpr int kLastTail = static_cast<int>(Tail::kUneven);
constexpr int kLastSharding = static_cast<int>(StreamSharding::kSamples);

void check_state(const StreamState& state) {
  bool is_valid = state.epoch >= 0 && state.parts >= 0 && state.buffer >= 0;
  for (const StreamStage& stage : state.stages) is_valid = is_valid && stage.num_replicas >= 1 && stage.used >= 0;
  if (!is_valid) throw std::invalid_argument("Stream state: a number is negative, or a stage has no ranks");
}

}  // namespace

std::string to_json(const StreamState& state) {
  nlohmann::json stages = nlohmann::json::array();
  int64_t consumed = 0;
  for (const StreamStage& stage : state.stages) {
    stages.push_back({stage.num_replicas, stage.used});
    consumed += stage.num_replicas * stage.used;
  }
  // For every sampler, a checkpoint compares seed, epoch, consumed and length between the ranks. For a stream, the
  // length of an epoch is not known, and ranks may have had different numbers of samples when it ends.
  constexpr int64_t kUnknown = -1;
  return nlohmann::json{{"seed", state.seed},
                        {"epoch", state.epoch},
                        {"parts", state.parts},
                        {"buffer", state.buffer},
                        {"shuffle", state.shuffle},
                        {"tail", static_cast<int>(state.tail)},
                        {"sharding", static_cast<int>(state.sharding)},
                        {"ended", state.has_ended},
                        {"stages", stages},
                        {"consumed", state.has_ended ? kUnknown : consumed},
                        {"length", kUnknown}}
      .dump();
}

StreamState stream_state_from_json(const std::string& text) {
  try {
    const auto json = nlohmann::json::parse(text);
    const auto choice = [&](const char* key, int most) {
      const int value = json.at(key).get<int>();
      if (value < 0 || value > most)
        throw std::invalid_argument(std::string("Stream state: \"") + key + "\" has an unknown value");
      return value;
    };
    StreamState state{.seed = json.at("seed").get<uint64_t>(),
                      .epoch = json.at("epoch").get<int64_t>(),
                      .parts = json.at("parts").get<int64_t>(),
                      .buffer = json.at("buffer").get<int64_t>(),
                      .shuffle = json.at("shuffle").get<bool>(),
                      .tail = static_cast<Tail>(choice("tail", kLastTail)),
                      .sharding = static_cast<StreamSharding>(choice("sharding", kLastSharding)),
                      .has_ended = json.at("ended").get<bool>()};
    for (const auto& stage : json.at("stages")) {
      state.stages.push_back({stage.at(0).get<int>(), stage.at(1).get<int64_t>()});
    }
    check_state(state);
    return state;
  } catch (const nlohmann::json::exception& error) {
    throw std::invalid_argument(std::string("this is not the state of a stream: ") + error.what());
  }
}

struct StreamSampler::State {
  StreamSamplerOptions options;
  Replica replica{};
  int64_t epoch = 0;  // the epoch of the next pass
  int64_t parts = 0;  // number of parts in the last dataset, or in the loaded state
  // The position at which the next pass begins, and the position of the last pass.
  detail::StreamPosition next{};
  std::optional<detail::StreamPosition> last{};

  StreamState state_of(const detail::StreamPosition& place) const {
    return {.seed = options.seed,
            .epoch = place.epoch,
            .parts = parts,
            .buffer = options.buffer,
            .shuffle = options.shuffle,
            .tail = options.tail,
            .sharding = options.sharding,
            .has_ended = place.has_ended,
            .stages = place.stages};
  }
};

StreamSampler::StreamSampler(const StreamSamplerOptions& options) : state_(std::make_shared<State>()) {
  state_->options = options;
  state_->replica = require_replica("StreamSampler", options.num_replicas, options.rank);
  check_replica(state_->replica.num_replicas, state_->replica.rank);
  if (options.buffer < 0) {
    throw std::invalid_argument("StreamSampler: expected a buffer of 0 or more samples, got " +
                                std::to_string(options.buffer));
  }
}

void StreamSampler::set_epoch(int64_t epoch) {
  if (epoch != state_->epoch) state_->next = {.epoch = epoch};
  state_->epoch = epoch;
}

int64_t StreamSampler::epoch() const {
  return state_->epoch;
}

StreamState StreamSampler::state() const {
  return state_->state_of(state_->last ? *state_->last : state_->next);
}

void StreamSampler::load_state(const StreamState& state) {
  check_state(state);
  const StreamSamplerOptions& options = state_->options;
  if (!state.stages.empty() && (state.buffer != options.buffer || state.shuffle != options.shuffle ||
                                state.tail != options.tail || state.sharding != options.sharding)) {
    throw std::invalid_argument("StreamSampler: the state was saved in the middle of an epoch with a buffer of " +
                                std::to_string(state.buffer) + ", but this sampler has " +
                                std::to_string(options.buffer) +
                                ", or another shuffle, tail or sharding: use the options of the saved run");
  }
  state_->options.seed = state.seed;
  state_->epoch = state.epoch;
  state_->parts = state.parts;
  state_->next = {.epoch = state.epoch, .stages = state.stages, .has_ended = state.has_ended};
  state_->last.reset();
}

std::string StreamSampler::save() const {
  return to_json(state());
}

void StreamSampler::load(const std::string& state) {
  load_state(stream_state_from_json(state));
}

StreamPass StreamSampler::pass(int64_t parts) const {
  const State& state = *state_;
  if (parts < 0)
    throw std::invalid_argument("StreamSampler: expected 0 or more parts of a dataset, got " + std::to_string(parts));
  if (!state.next.stages.empty() && parts != state.parts) {
    throw std::invalid_argument("StreamSampler: the state was saved in an epoch of " + std::to_string(state.parts) +
                                " parts, but the dataset has " + std::to_string(parts) +
                                ": use the dataset of the saved run");
  }
  StreamPass pass;
  pass.state_ = state_;
  pass.epoch_ = {.parts = parts,
                 .seed = state.options.seed,
                 .epoch = state.next.epoch,
                 .shuffle = state.options.shuffle,
                 .buffer = state.options.buffer,
                 .sharding = state.options.sharding,
                 .tail = state.options.tail,
                 .num_replicas = state.replica.num_replicas,
                 .rank = state.replica.rank};
  pass.stages_ = state.next.stages;
  pass.has_ended_ = state.next.has_ended;
  if (!pass.stages_.empty() && pass.stages_.back().num_replicas == state.replica.num_replicas) {
    pass.used_before_ = pass.stages_.back().used;
    pass.stages_.pop_back();
  }
  return pass;
}

StreamPass StreamSampler::begin_pass(int64_t parts) {
  StreamPass begun = pass(parts);
  state_->parts = parts;
  state_->next = {.epoch = state_->epoch};
  if (begun.has_ended_) {
    begun.end();
  } else {
    begun.used(0);
  }
  return begun;
}

int64_t StreamSampler::size(int64_t parts, const detail::StreamPartSize& size) const {
  const StreamPass next = pass(parts);
  if (next.is_empty()) return 0;
  return std::max<int64_t>(0, detail::planned_samples(next.plan(size), size) - next.used_before());
}

detail::StreamRankPlan StreamPass::plan(const detail::StreamPartSize& size) const {
  return detail::plan_stream(epoch_, stages_, size);
}

void StreamPass::used(int64_t samples) const {
  if (samples < 0)
    throw std::invalid_argument("StreamSampler: expected 0 or more used samples, got " + std::to_string(samples));
  report(samples, false);
}

void StreamPass::end() const {
  report(state_->last ? state_->last->used_in_pass : 0, true);
}

void StreamPass::report(int64_t samples, bool has_ended) const {
  StreamSampler::State& state = *state_;
  detail::StreamPosition place{
      .epoch = epoch_.epoch, .stages = stages_, .has_ended = has_ended, .used_in_pass = samples};
  const int64_t used = used_before_ + samples;
  if (used > 0) place.stages.push_back({epoch_.num_replicas, used});
  // The last pass to report sets the position of the job, even if a state was loaded in the meantime.
  state.options.seed = epoch_.seed;
  state.parts = epoch_.parts;
  if (!state.next.stages.empty() || state.next.has_ended) {
    state.epoch = epoch_.epoch;
    state.next = {.epoch = epoch_.epoch};
  }
  state.last = std::move(place);
}

}  // namespace ddp

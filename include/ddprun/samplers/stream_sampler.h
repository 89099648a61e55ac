// Determines which samples of a stream (a dataset without an index) belong to which rank, and stores the position of a
// job in the stream. Does not use LibTorch.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ddprun/base/rank_info.h>
#include <ddprun/detail/samplers/replica_option.h>
#include <ddprun/detail/samplers/stream_order.h>
#include <ddprun/samplers/shard.h>

namespace ddp {

/// Specifies how a stream is divided.
enum class StreamSharding {
  kAuto,     ///< kParts if there are enough parts for each rank, otherwise kSamples
  kParts,    ///< rank r reads only every num_replicas-th part (file)
  kSamples,  ///< every rank reads all parts, and uses every num_replicas-th sample
};

/// Settings of a StreamSampler, all optional. All ranks need the same ones, except `rank`.
struct StreamSamplerOptions {
  bool shuffle = true;  ///< whether the order of the parts is random, drawn with seed + epoch
  int64_t buffer = 0;   ///< number of samples in memory from which the next one is drawn at random; 0: samples keep the
                        ///< order of the parts
  /// Specifies what happens if the ranks have different numbers of samples. kUneven: the numbers are not changed, so
  /// the ranks end at different times and must train in a ddp::join(). kRepeat, kDrop: each rank repeats some of its
  /// samples, or leaves some out, so that all ranks have the same number. This needs the sizes of all parts; unknown
  /// sizes are determined by counting before the first batch.
  Tail tail = Tail::kUneven;
  StreamSharding sharding = StreamSharding::kAuto;  ///< see StreamSharding
  uint64_t seed = 0;                                ///< must be equal on all ranks
  std::optional<int> num_replicas{};                ///< number of ranks that share the stream
  std::optional<int> rank{};                        ///< the rank of this process: 0 … num_replicas-1
};

/// A part of an epoch that was processed with a certain number of ranks.
struct StreamStage {
  int num_replicas = 1;  ///< number of ranks
  int64_t used = 0;      ///< samples that each rank has used; a rank that had fewer has used all of its samples
  /// Whether both are equal.
  bool operator==(const StreamStage&) const = default;
};

/// The state that ranks need to resume in mid-epoch. It is the same on all ranks; save that of rank 0.
struct StreamState {
  uint64_t seed = 0;                  ///< the seed of the sampler
  int64_t epoch = 0;                  ///< the epoch that has begun
  int64_t parts = 0;                  ///< number of parts of the dataset; 0 if no pass has begun
  int64_t buffer = 0;                 ///< the buffer size of the sampler
  bool shuffle = true;                ///< the setting of the sampler
  Tail tail = Tail::kUneven;          ///< the setting of the sampler
  StreamSharding sharding{};          ///< the setting of the sampler
  bool has_ended = false;             ///< whether all samples of the epoch are used
  std::vector<StreamStage> stages{};  ///< the samples of the epoch that were used
  /// Whether all members are equal.
  bool operator==(const StreamState&) const = default;
};

/// Returns the state as one JSON object.
std::string to_json(const StreamState& state);
/// Throws std::invalid_argument if `text` is not such an object.
StreamState stream_state_from_json(const std::string& text);

class StreamPass;

namespace detail {

// The position at which a pass begins, or which it has reached.
struct StreamPosition {
  int64_t epoch = 0;
  std::vector<StreamStage> stages{};
  bool has_ended = false;
  int64_t used_in_pass = 0;
};

}  // namespace detail

/// This rank's share of a stream, epoch by epoch, for a Loader or DeviceLoader over an IterableDataset:
///
///     ddp::WebDataset shards("train-{0000..0127}.tar", decode);
///     ddp::StreamSampler sampler(group, {.buffer = 1000, .seed = 0});
///     ddp::DeviceLoader loader(shards, sampler, group.device(), {.batch_size = 64, .workers = 4});
///     for (int64_t epoch = 0; epoch < 10; ++epoch) {
///       sampler.set_epoch(epoch);
///       for (auto& batch : loader) { … }
///     }
///
/// The order depends on seed, epoch, buffer, the number of ranks and the parts, but not on workers. The object is a
/// handle: copies share one state. No call communicates. Not safe for concurrent calls.
///
/// **To resume in mid-epoch**, save the loader or the sampler in a checkpoint, when all ranks have used the same number
/// of batches (`TrainingState{.sampler = loader}`). With the same number of ranks the run then continues as if it had
/// not been interrupted: no sample is repeated or lost, and the order is the same. With another number of ranks, each
/// remaining sample of the epoch is still used exactly once, in another order. The state has the number of used
/// samples, not their positions in files, so a resume asks the dataset for the sizes of the parts that were begun.
class StreamSampler {
 public:
  /// For one process, or with `.num_replicas` and `.rank`. Throws std::invalid_argument, naming the values, for a
  /// negative buffer, a rank outside num_replicas, and in a job of several ranks when neither was given (see
  /// require_replica()).
  explicit StreamSampler(const StreamSamplerOptions& options = {});

  /// The same for a rank of a ProcessGroup, GroupHandle or any other type with rank() and size(). Throws as above, and
  /// std::invalid_argument on every rank when the options contain a rank too.
  template <RankedGroup Group>
  explicit StreamSampler(const Group& group, const StreamSamplerOptions& options = {})
      : StreamSampler(with_replica("StreamSampler", options, group)) {}

  /// Sets the epoch of the next pass. Call it on every rank before each epoch.
  void set_epoch(int64_t epoch);
  /// Returns the epoch that set_epoch() has set; initially 0.
  int64_t epoch() const;

  /// Returns the position of the job after the batches that the body of the loop has received.
  StreamState state() const;
  /// Sets seed, epoch and position: the next pass returns the remaining samples of that epoch. Throws
  /// std::invalid_argument, and changes nothing, for a state with impossible values, and for a state that was saved in
  /// mid-epoch with another buffer, shuffle, tail or sharding.
  void load_state(const StreamState& state);
  /// Returns state() as JSON, for CheckpointManager: TrainingState{.sampler = sampler}.
  std::string save() const;
  /// Calls load_state() with the state that save() has returned.
  void load(const std::string& state);

  /// Called by Loader: begins a pass over the remaining samples of the epoch, for a dataset with `parts` parts. Throws
  /// std::invalid_argument if the loaded state belongs to a dataset with another number of parts.
  StreamPass begin_pass(int64_t parts);
  /// Called by Loader: returns the number of samples that this rank would get from a pass that begins now. `size`
  /// returns the number of samples of a part.
  int64_t size(int64_t parts, const detail::StreamPartSize& size) const;

 private:
  friend class StreamPass;
  struct State;

  // Returns the pass that would begin now.
  StreamPass pass(int64_t parts) const;

  std::shared_ptr<State> state_;
};

/// One pass of a loader over a stream.
class StreamPass {
 public:
  /// The epoch of the pass.
  int64_t epoch() const { return epoch_.epoch; }
  /// Whether all samples of the epoch are used.
  bool is_empty() const { return has_ended_; }
  /// Returns the number of samples of the last stage that were used before the pass began.
  int64_t used_before() const { return used_before_; }
  /// Returns this rank's plan of the last stage, from its beginning.
  detail::StreamRankPlan plan(const detail::StreamPartSize& size) const;
  /// Reports that this rank has used, or is about to use, that many samples of the pass. From now on, the sampler's
  /// state() returns this position.
  void used(int64_t samples) const;
  /// Reports that the loop has ended, which means that all samples of the epoch are used.
  void end() const;

 private:
  friend class StreamSampler;
  StreamPass() = default;

  void report(int64_t samples, bool has_ended) const;

  std::shared_ptr<StreamSampler::State> state_;
  detail::StreamEpoch epoch_;
  std::vector<StreamStage> stages_;  // the stages before the last one
  int64_t used_before_ = 0;
  bool has_ended_ = false;
};

}  // namespace ddp

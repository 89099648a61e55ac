// The common base of all distributed samplers: epochs, batches, and saving and resuming in mid-epoch.
#pragma once

#include <torch/data/samplers/base.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ddprun/samplers/shard.h>

namespace ddp {

class SamplerPass;

/// This rank's share of the sample indices, epoch by epoch. Each kind of sampler derives from this class and defines
/// the order of an epoch.
///
/// It is a handle: copies share one state. torch::data::make_data_loader() stores its sampler by value, so set_epoch()
/// only affects the loader because copies share their state. Two loaders that run at the same time need two samplers.
/// No call communicates; all ranks must use the same sizes, seed and epoch. Not safe for concurrent calls.
class EpochSampler : public torch::data::samplers::Sampler<> {
 public:
  /// Sets the epoch whose order the next reset() draws. Call it on every rank before each epoch; otherwise each epoch
  /// has the same order.
  void set_epoch(int64_t epoch);
  /// Returns the epoch that set_epoch() has set; initially 0.
  int64_t epoch() const;

  /// Returns the number of samples that indices() returns.
  int64_t size() const;

  /// Returns this rank's samples of the current epoch in order; after load_state(), only the remaining ones. It does
  /// not advance next(), and state() does not count these samples as used; for that, call begin_pass().
  std::vector<int64_t> indices() const;

  /// Returns all of this rank's samples of that epoch in order, including those that are already used. A dataset may
  /// replace an unreadable sample by one of them.
  std::vector<int64_t> share_of_epoch(int64_t epoch) const;

  /// Starts the current epoch as reset() does, for a loader that gets all samples of a pass at once and reports which
  /// of them were used: Loader, DeviceLoader, batches().
  SamplerPass begin_pass();

  /// Starts the current epoch from its beginning; the first call after load_state() starts at the loaded position
  /// instead. new_size changes the dataset's size; only DistributedSampler and SequentialSampler support it, others
  /// throw std::invalid_argument. The loader calls it.
  void reset(std::optional<size_t> new_size = std::nullopt) override;

  /// Returns up to batch_size further samples of the epoch, or nullopt at its end.
  std::optional<std::vector<size_t>> next(size_t batch_size) override;

  /// Returns the position of the job, to be saved in a checkpoint. It is after the samples that next() returned or that
  /// a pass has reported as used. LibTorch's loader calls next() in advance, and the sampler cannot know how many of
  /// indices() are used. In these cases, call state_after() with the number of samples that this rank has used since
  /// the epoch began, or since load_state(). All ranks must have used the same number.
  SamplerState state() const;
  /// Like state(), but for a loader that reads ahead: the position after `samples` samples of this rank since the epoch
  /// began, or since load_state(). Throws std::invalid_argument for a number that is negative or beyond the end of the
  /// epoch.
  SamplerState state_after(int64_t samples) const;

  /// Continues at the position of the state, with any number of ranks. It sets seed and epoch. The next reset(), next()
  /// or indices() returns the rest of that epoch, and set_epoch() with another epoch starts that epoch from its
  /// beginning. Throws std::invalid_argument, and changes nothing, if the state belongs to a dataset with another
  /// number of samples.
  void load_state(const SamplerState& state);

  /// Returns state() as JSON, for CheckpointManager: TrainingState{.sampler = sampler}.
  std::string save() const;
  /// Calls load_state() with a state that save() has returned, or with the bytes of an archive.
  void load(const std::string& state);

  /// The same for torch::save and torch::load.
  void save(torch::serialize::OutputArchive& archive) const override;
  /// Calls load_state() with the state that save() has written into an archive.
  void load(torch::serialize::InputArchive& archive) override;

 protected:
  /// Returns the order of all samples for this seed, which must be the same on every rank. `length` is the number of
  /// entries. Functions that use an order throw std::logic_error if it has another number of entries or a negative
  /// entry.
  using OrderFunction = std::function<std::vector<int64_t>(int64_t length, uint64_t seed)>;

  struct Kind {
    const char* name = "";  ///< used in messages
    int64_t length = 0;     ///< samples per epoch, over all ranks
    bool can_change_length = false;
    int num_replicas = 1;
    int rank = 0;
    Tail tail = Tail::kRepeat;
    uint64_t seed = 0;  ///< the order is drawn with seed + epoch
    OrderFunction order{};
  };

  /// Throws std::invalid_argument, naming the values, for a negative length or a rank outside num_replicas.
  explicit EpochSampler(Kind kind);

 private:
  friend class SamplerPass;
  struct State;
  std::shared_ptr<State> state_;
};

/// One pass of a loader over a sampler's epoch. The loader reads ahead, so it reports which samples were used. It
/// shares the sampler's state, as copies of the sampler do.
class SamplerPass {
 public:
  /// The epoch of the pass.
  int64_t epoch() const { return epoch_; }
  /// This rank's samples of the pass, in order.
  const std::vector<int64_t>& indices() const { return indices_; }

  /// Reports that this rank has used, or is about to use, the first `samples` of indices(). From now on, the sampler's
  /// state() returns this position. If several passes report, the last report determines the position of the job, even
  /// if a state was loaded or a pass was begun in the meantime. Throws std::invalid_argument for a number outside 0 …
  /// indices().size().
  void used(int64_t samples) const;

 private:
  friend class EpochSampler;
  SamplerPass(std::shared_ptr<EpochSampler::State> state, std::vector<int64_t> indices);

  std::shared_ptr<EpochSampler::State> state_;
  std::vector<int64_t> indices_;
  uint64_t seed_ = 0;
  int64_t epoch_ = 0;
  int64_t consumed_ = 0;   // samples used before the first of indices_
  mutable int64_t loads_;  // number of states loaded into the sampler, as last seen by this pass
};

}  // namespace ddp

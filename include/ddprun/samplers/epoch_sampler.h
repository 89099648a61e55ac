// What all distributed samplers have in common: epochs, batches, saving and going on in mid-epoch.
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

/// This rank's share of the sample indices, epoch by epoch. Each kind of sampler derives from it and says what the
/// order of an epoch is.
///
/// It is a handle: copies share one state. torch::data::make_data_loader() stores its sampler by value, so this is what
/// makes set_epoch() reach the loader; two loaders that run at the same time need a sampler each. No call communicates;
/// all ranks must use the same sizes, seed and epoch. Not safe for concurrent calls.
class EpochSampler : public torch::data::samplers::Sampler<> {
 public:
  /// The epoch whose order the next reset() draws. Call it on every rank before each epoch; without it each epoch has
  /// the same order.
  void set_epoch(int64_t epoch);
  /// The epoch that set_epoch() has set; 0 at first.
  int64_t epoch() const;

  /// Number of samples that indices() gives.
  int64_t size() const;

  /// This rank's samples of the current epoch, in order; after load_state() those that are left. Does not advance
  /// next(), and state() does not learn how many of them are used: begin_pass() is for that.
  std::vector<int64_t> indices() const;

  /// All of this rank's samples of that epoch, in order, whatever was used of it: what a dataset may put in the place
  /// of one that cannot be read.
  std::vector<int64_t> share_of_epoch(int64_t epoch) const;

  /// Starts the current epoch as reset() does, for a loader that takes all of a pass's samples at once and says which
  /// of them were used: Loader, DeviceLoader, batches().
  SamplerPass begin_pass();

  /// Starts the current epoch: from its beginning, or once from where load_state() says. new_size changes the dataset's
  /// size, which only a DistributedSampler and a SequentialSampler can: others throw std::invalid_argument. The loader
  /// calls it.
  void reset(std::optional<size_t> new_size = std::nullopt) override;

  /// Up to batch_size further samples of the epoch, or nullopt.
  std::optional<std::vector<size_t>> next(size_t batch_size) override;

  /// Where the job stands after the samples that next() gave out, or that a pass has reported as used: what is to be
  /// saved. LibTorch's own loader reads ahead with next(), and nothing is known of what is done with indices(): then
  /// say how many this rank has used since the epoch began, or since load_state(). The ranks must have used as many
  /// each.
  SamplerState state() const;
  /// state() for a loader that reads ahead: after `samples` of this rank since the epoch began, or since load_state().
  /// Throws std::invalid_argument for a negative number and one beyond the epoch's end.
  SamplerState state_after(int64_t samples) const;

  /// Goes on where the state was taken, with any number of ranks: takes over seed and epoch; the next reset(), next()
  /// or indices() gives the rest of that epoch, and set_epoch() to another one starts that from its beginning. Throws
  /// std::invalid_argument, and changes nothing, when the state was taken over another number of samples.
  void load_state(const SamplerState& state);

  /// state() and load_state() as JSON, for CheckpointManager: TrainingState{.sampler = sampler}. load() also takes
  /// the bytes of an archive.
  std::string save() const;
  /// load_state() of what save() has returned.
  void load(const std::string& state);

  /// The same for torch::save and torch::load.
  void save(torch::serialize::OutputArchive& archive) const override;
  /// load_state() of what save() has written into an archive.
  void load(torch::serialize::InputArchive& archive) override;

 protected:
  /// The order of all samples for this seed, the same on every rank. `length` is how many it has; calls that draw an
  /// order throw std::logic_error where it has another number, or a negative one in it.
  using OrderFunction = std::function<std::vector<int64_t>(int64_t length, uint64_t seed)>;

  struct Kind {
    const char* name = "";  ///< for messages
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

/// One pass over a sampler's epoch by a loader, which reads ahead and therefore says itself what was used. It shares
/// the sampler's state, as copies of the sampler do.
class SamplerPass {
 public:
  /// The epoch of the pass.
  int64_t epoch() const { return epoch_; }
  /// This rank's samples of the pass, in order.
  const std::vector<int64_t>& indices() const { return indices_; }

  /// This rank has used, or is about to use, the first `samples` of indices(): from now on the sampler's state() says
  /// so. The pass that reports last sets the position of the job, whatever was loaded or begun since. Throws
  /// std::invalid_argument for a number outside 0 … indices().size().
  void used(int64_t samples) const;

 private:
  friend class EpochSampler;
  SamplerPass(std::shared_ptr<EpochSampler::State> state, std::vector<int64_t> indices);

  std::shared_ptr<EpochSampler::State> state_;
  std::vector<int64_t> indices_;
  uint64_t seed_ = 0;
  int64_t epoch_ = 0;
  int64_t consumed_ = 0;   // before the first of indices_
  mutable int64_t loads_;  // of the sampler's states, as far as this pass knows of them
};

}  // namespace ddp

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

#include "samplers/sampler_state.h"
#include "samplers/shard.h"

namespace ddp {

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
  int64_t epoch() const;

  /// Number of samples that indices() gives.
  int64_t size() const;

  /// This rank's samples of the current epoch, in order; after load_state() those that are left. Does not advance
  /// next().
  std::vector<int64_t> indices() const;

  /// All of this rank's samples of that epoch, in order, whatever was used of it: what a dataset may put in the place of
  /// one that cannot be read.
  std::vector<int64_t> share_of_epoch(int64_t epoch) const;

  /// Starts the current epoch: from its beginning, or once from where load_state() says. new_size changes the dataset's
  /// size, which only a DistributedSampler and a SequentialSampler can: others throw std::invalid_argument. The loader
  /// calls it.
  void reset(std::optional<size_t> new_size = std::nullopt) override;

  /// Up to batch_size further samples of the epoch; nullopt when there are none left.
  std::optional<std::vector<size_t>> next(size_t batch_size) override;

  /// Where the job stands after the samples that next() gave out. A loader that reads ahead has asked for more than was
  /// used for training: then say how many this rank has used since the epoch began, or since load_state(). The ranks
  /// must have used as many each.
  SamplerState state() const;
  SamplerState state_after(int64_t samples) const;

  /// Goes on where the state was taken, with any number of ranks: takes over seed and epoch; the next reset(), next()
  /// or indices() gives the rest of that epoch, and set_epoch() to another one starts that from its beginning. Throws
  /// std::invalid_argument, and changes nothing, when the state was taken over another number of samples.
  void load_state(const SamplerState& state);

  /// state() and load_state() as JSON, for CheckpointManager: TrainingState{.sampler = sampler}. load() also takes
  /// the bytes of an archive.
  std::string save() const;
  void load(const std::string& state);

  /// The same for torch::save and torch::load.
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

 protected:
  /// The order of all samples for this seed, the same on every rank. `length` is how many it has.
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
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace ddp

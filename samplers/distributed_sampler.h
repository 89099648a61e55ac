// Splits a dataset over the ranks of a job, in exactly the order of Python's torch.utils.data.DistributedSampler.
#pragma once

#include <torch/data/samplers/base.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace ddp {

struct DistributedSamplerOptions {
  int num_replicas = 1;    ///< number of ranks that share the dataset
  int rank = 0;            ///< this process's rank: 0 … num_replicas-1
  bool shuffle = true;     ///< a new order per epoch, equal on all ranks; false keeps the dataset's order
  uint64_t seed = 0;       ///< must be equal on all ranks; the order is drawn with seed + epoch
  bool drop_last = false;  ///< leave the tail out instead of repeating samples where the ranks do not divide
};

/// This rank's share of the sample indices, epoch by epoch.
///
///     ddp::DistributedSampler sampler(dataset.size(), {.num_replicas = group.size(), .rank = group.rank()});
///     auto loader = torch::data::make_data_loader(dataset, sampler, 128);
///     for (int64_t epoch = 0; epoch < 10; ++epoch) {
///       sampler.set_epoch(epoch);
///       for (auto& batch : *loader) { … }
///     }
///
/// It is a handle: copies share one state. make_data_loader() stores its sampler by value, so this is what makes
/// set_epoch() reach the loader; two loaders that run at the same time need a sampler each. No call communicates; all
/// ranks must use the same dataset size, seed and epoch. Not safe for concurrent calls.
class DistributedSampler : public torch::data::samplers::Sampler<> {
 public:
  /// Throws std::invalid_argument, naming the values, for a negative size or a rank outside num_replicas.
  explicit DistributedSampler(int64_t dataset_size, DistributedSamplerOptions options = {});

  /// The epoch whose order the next reset() draws. Call it on every rank before each epoch; without it each epoch has
  /// the same order.
  void set_epoch(int64_t epoch);
  int64_t epoch() const;

  /// Number of samples per epoch on this rank, the same on every rank.
  int64_t size() const;

  /// This rank's samples of the current epoch, all of them, in order. Does not advance next().
  std::vector<int64_t> indices() const;

  /// Starts the current epoch from its beginning; new_size changes the dataset's size. The loader calls it.
  void reset(std::optional<size_t> new_size = std::nullopt) override;

  /// Up to batch_size further samples of the epoch; nullopt when there are none left.
  std::optional<std::vector<size_t>> next(size_t batch_size) override;

  /// Writes seed, epoch and the position within the epoch, so that load() continues with the sample after the last one
  /// that next() gave out. load() throws std::invalid_argument when the state cannot continue here: another number of
  /// ranks in mid-epoch, or more samples done than there are.
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace ddp

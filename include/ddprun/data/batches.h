// Range-for over a dataset in a given order of samples, a batch at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <ddprun/samplers/epoch_sampler.h>

namespace ddp {

/// See batches().
template <typename Dataset>
class BatchRange {
 public:
  /// What the dataset's get_batch() returns.
  using Batch = decltype(std::declval<const Dataset&>().get_batch(std::span<const int64_t>()));

  /// Reads a batch at each increment. The previous batch is then released unless the program kept its tensors.
  class Iterator {
   public:
    /// Called by BatchRange::begin(); programs do not call it.
    Iterator(const BatchRange* range, std::optional<SamplerPass> pass) : range_(range), pass_(std::move(pass)) {
      read();
    }
    /// The current batch.
    Batch& operator*() { return batch_; }
    /// Reads the next batch.
    Iterator& operator++() {
      begin_ += range_->batch_size_;
      read();
      return *this;
    }
    /// Whether all batches have been read.
    bool operator==(std::default_sentinel_t) const { return begin_ >= indices().size(); }

   private:
    std::span<const int64_t> indices() const { return pass_ ? pass_->indices() : range_->indices_; }
    void read() {
      if (begin_ >= indices().size()) return;
      const size_t count = std::min(range_->batch_size_, indices().size() - begin_);
      batch_ = range_->dataset_->get_batch(indices().subspan(begin_, count));
      if (pass_) pass_->used(static_cast<int64_t>(begin_ + count));
    }

    const BatchRange* range_;
    std::optional<SamplerPass> pass_;
    size_t begin_ = 0;
    Batch batch_;
  };

  /// As batches() with indices.
  BatchRange(const Dataset& dataset, std::vector<int64_t> indices, int64_t batch_size)
      : BatchRange(dataset, nullptr, std::move(indices), batch_size) {}
  /// As batches() with a sampler.
  BatchRange(const Dataset& dataset, EpochSampler& sampler, int64_t batch_size)
      : BatchRange(dataset, &sampler, {}, batch_size) {}

  /// Number of batches; with a sampler, of a pass that begins now.
  int64_t size() const {
    const auto samples = sampler_ ? sampler_->size() : std::ssize(indices_);
    const auto batch_size = static_cast<int64_t>(batch_size_);
    return samples / batch_size + (samples % batch_size != 0 ? 1 : 0);
  }

  /// With a sampler, each call begins a pass over the remaining samples of the sampler's epoch.
  Iterator begin() const { return Iterator(this, sampler_ ? std::optional(sampler_->begin_pass()) : std::nullopt); }
  /// The end of the loop.
  std::default_sentinel_t end() const { return std::default_sentinel; }

 private:
  BatchRange(const Dataset& dataset, EpochSampler* sampler, std::vector<int64_t> indices, int64_t batch_size)
      : dataset_(&dataset),
        sampler_(sampler),
        indices_(std::move(indices)),
        batch_size_(static_cast<size_t>(batch_size)) {
    if (batch_size < 1) {
      throw std::invalid_argument("Invalid batch size " + std::to_string(batch_size) + ", it should be at least 1");
    }
  }

  const Dataset* dataset_;
  EpochSampler* sampler_;
  std::vector<int64_t> indices_;
  size_t batch_size_;
};

/// The samples that `indices` name, in that order, batch_size at a time; the last batch may be smaller. The dataset
/// must outlive the range. Throws std::invalid_argument for a batch size below 1.
///
///     for (auto& batch : ddp::batches(dataset, sampler.indices(), 16)) {
///       auto loss = torch::nn::functional::cross_entropy(model(batch.data), batch.target);
template <typename Dataset>
BatchRange<Dataset> batches(const Dataset& dataset, std::vector<int64_t> indices, int64_t batch_size) {
  return BatchRange<Dataset>(dataset, std::move(indices), batch_size);
}
template <typename Dataset>
void batches(const Dataset&& dataset, std::vector<int64_t> indices, int64_t batch_size) = delete;

/// The same over the remaining samples of the sampler's current epoch. The sampler must outlive the range. It counts
/// each batch as used when the loop gets it, so a run that is resumed from a checkpoint of the sampler continues with
/// the next batch.
///
///     for (auto& batch : ddp::batches(dataset, sampler, 16)) { … }
template <typename Dataset>
BatchRange<Dataset> batches(const Dataset& dataset, EpochSampler& sampler, int64_t batch_size) {
  return BatchRange<Dataset>(dataset, sampler, batch_size);
}
template <typename Dataset>
void batches(const Dataset&& dataset, EpochSampler& sampler, int64_t batch_size) = delete;

}  // namespace ddp

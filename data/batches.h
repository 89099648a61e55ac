// Range-for over a dataset in a given order of samples, a batch at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace ddp {

/// See batches().
template <typename Dataset>
class BatchRange {
 public:
  using Batch = decltype(std::declval<const Dataset&>().get_batch(std::span<const int64_t>()));

  /// Reads a batch each time it moves on to one; the batch before is then gone unless its tensors were kept.
  class Iterator {
   public:
    explicit Iterator(const BatchRange* range) : range_(range) { read(); }
    Batch& operator*() { return batch_; }
    Iterator& operator++() {
      begin_ += range_->batch_size_;
      read();
      return *this;
    }
    bool operator==(std::default_sentinel_t) const { return begin_ >= range_->indices_.size(); }

   private:
    void read() {
      const std::span<const int64_t> indices = range_->indices_;
      if (begin_ >= indices.size()) return;
      const size_t count = std::min(range_->batch_size_, indices.size() - begin_);
      batch_ = range_->dataset_->get_batch(indices.subspan(begin_, count));
    }

    const BatchRange* range_;
    size_t begin_ = 0;
    Batch batch_;
  };

  BatchRange(const Dataset& dataset, std::vector<int64_t> indices, int64_t batch_size)
      : dataset_(&dataset), indices_(std::move(indices)), batch_size_(static_cast<size_t>(batch_size)) {
    if (batch_size < 1) {
      throw std::invalid_argument("Invalid batch size " + std::to_string(batch_size) + ", it should be at least 1");
    }
  }

  /// Number of batches.
  int64_t size() const { return static_cast<int64_t>((indices_.size() + batch_size_ - 1) / batch_size_); }

  Iterator begin() const { return Iterator(this); }
  std::default_sentinel_t end() const { return std::default_sentinel; }

 private:
  const Dataset* dataset_;
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

}  // namespace ddp

// Groups sample indices into batches, like Python's torch.utils.data.BatchSampler. Does not use LibTorch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <vector>

namespace ddp {

/// The indices of one pass, `batch_size` at a time.
///
///     for (std::span<const int64_t> batch : ddp::BatchSampler(sampler.indices(), 128, /*drop_last=*/true)) { … }
class BatchSampler {
 public:
  /// With drop_last, an incomplete last batch is omitted. Throws std::invalid_argument for a batch size below 1.
  BatchSampler(std::vector<int64_t> indices, int64_t batch_size, bool drop_last = false);

  /// Number of batches.
  int64_t size() const { return size_; }

  /// Returns batch number 0 … size()-1, which is valid during the lifetime of the BatchSampler. Throws
  /// std::out_of_range.
  std::span<const int64_t> operator[](int64_t batch) const;

  /// Iterates over the batches.
  class Iterator {
   public:
    /// A batch: the indices of its samples.
    using value_type = std::span<const int64_t>;
    /// Required by the standard library.
    using difference_type = std::ptrdiff_t;

    /// An iterator that does not belong to a BatchSampler.
    Iterator() = default;
    /// Called by begin() and end(); programs do not call it.
    Iterator(const BatchSampler* batches, int64_t batch) : batches_(batches), batch_(batch) {}
    /// The current batch.
    value_type operator*() const { return (*batches_)[batch_]; }
    /// Advances to the next batch.
    Iterator& operator++() {
      ++batch_;
      return *this;
    }
    /// Advances to the next batch, and returns an iterator to the previous one.
    Iterator operator++(int) {
      Iterator before = *this;
      ++batch_;
      return before;
    }
    /// Whether both iterators are at the same batch.
    bool operator==(const Iterator& other) const { return batch_ == other.batch_; }

   private:
    const BatchSampler* batches_ = nullptr;
    int64_t batch_ = 0;
  };

  /// The first batch.
  Iterator begin() const { return {this, 0}; }
  /// The end of the loop.
  Iterator end() const { return {this, size_}; }

 private:
  std::vector<int64_t> indices_;
  int64_t batch_size_;
  int64_t size_;
};

}  // namespace ddp

// Sample indices in batches, as Python's torch.utils.data.BatchSampler. No LibTorch.
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
  /// With drop_last a last batch that is not full is left out. Throws std::invalid_argument for a batch size below 1.
  BatchSampler(std::vector<int64_t> indices, int64_t batch_size, bool drop_last = false);

  /// Number of batches.
  int64_t size() const { return size_; }

  /// Batch number 0 … size()-1; valid as long as the BatchSampler. Throws std::out_of_range.
  std::span<const int64_t> operator[](int64_t batch) const;

  class Iterator {
   public:
    using value_type = std::span<const int64_t>;
    using difference_type = std::ptrdiff_t;

    Iterator() = default;
    Iterator(const BatchSampler* batches, int64_t batch) : batches_(batches), batch_(batch) {}
    value_type operator*() const { return (*batches_)[batch_]; }
    Iterator& operator++() {
      ++batch_;
      return *this;
    }
    Iterator operator++(int) {
      Iterator before = *this;
      ++batch_;
      return before;
    }
    bool operator==(const Iterator& other) const { return batch_ == other.batch_; }

   private:
    const BatchSampler* batches_ = nullptr;
    int64_t batch_ = 0;
  };

  Iterator begin() const { return {this, 0}; }
  Iterator end() const { return {this, size_}; }

 private:
  std::vector<int64_t> indices_;
  int64_t batch_size_;
  int64_t size_;
};

}  // namespace ddp

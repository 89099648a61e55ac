// Which rank updates which parameter (ZeRO stage 1). Does not use LibTorch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ddp::optim {

/// Deals parameters out to ranks so that each gets nearly the same number of elements: by size, largest first, each to
/// the rank that has least so far. Later groups continue where earlier ones ended. Reference: the partition of Python's
/// ZeroRedundancyOptimizer, index by index.
class Partition {
 public:
  explicit Partition(int world_size) : elements_(static_cast<size_t>(world_size), 0) {}

  /// Adds a group whose parameters have `sizes` elements; returns the indices of each rank's, in the order dealt.
  std::vector<std::vector<size_t>> add_group(const std::vector<int64_t>& sizes);

  /// How many elements each rank has.
  const std::vector<int64_t>& elements() const { return elements_; }

 private:
  std::vector<int64_t> elements_;
};

}  // namespace ddp::optim

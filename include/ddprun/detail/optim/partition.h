// Determines which rank updates which parameter (ZeRO stage 1). Does not use LibTorch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ddp::optim {

/// Assigns parameters to ranks so that each rank gets nearly the same number of elements: the largest parameter first,
/// and each parameter to the rank that has the fewest elements so far. Later groups continue with the numbers of the
/// earlier ones. Reference: Python's ZeroRedundancyOptimizer, which computes the same indices.
class Partition {
 public:
  explicit Partition(int world_size) : elements_(static_cast<size_t>(world_size), 0) {}

  /// Adds a group whose parameters have `sizes` elements. Returns the indices of each rank's parameters, in the order
  /// in which they were assigned.
  std::vector<std::vector<size_t>> add_group(const std::vector<int64_t>& sizes);

  /// Returns the number of elements of each rank.
  const std::vector<int64_t>& elements() const { return elements_; }

 private:
  std::vector<int64_t> elements_;
};

}  // namespace ddp::optim

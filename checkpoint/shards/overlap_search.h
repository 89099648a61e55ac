// Finds two chunks of a tensor that have an element in common. No LibTorch and no I/O.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "checkpoint/shards/tensor_catalog.h"

namespace ddp::shards {

/// Divides the chunks by planes that cut none of them, as grids of any number of dimensions allow, and compares those
/// that no plane divides: n chunks of a grid take n log n steps, of an irregular pattern up to n^2.
class OverlapSearch {
 public:
  /// Any number of searches together take about `max_steps` steps of a few nanoseconds.
  explicit OverlapSearch(int64_t max_steps) : steps_left_(max_steps) {}

  /// The places of two chunks that have an element in common; nullopt if no two have, or if the steps were not
  /// enough. The chunks have elements and the same number of dimensions.
  std::optional<std::pair<size_t, size_t>> find(const std::vector<Chunk>& chunks);

  /// Whether the last answer is not known to be right.
  bool has_given_up() const { return steps_left_ < 0; }

 private:
  using Pair = std::pair<size_t, size_t>;
  // Chunks by their places in order_.
  struct Range {
    size_t first = 0;
    size_t last = 0;
    size_t size() const { return last - first; }
  };
  // Where a chunk begins and ends in one dimension.
  struct Edges {
    int64_t begin = 0;
    int64_t end = 0;
    size_t chunk = 0;
  };

  std::optional<Pair> search(Range range);
  bool divide(Range range, size_t dimension);
  std::optional<Pair> compare_all(Range range);
  std::optional<Pair> sweep(Range range);
  void sort_edges(Range range, size_t dimension);
  size_t begins() const;

  int64_t steps_left_;
  const std::vector<Chunk>* chunks_ = nullptr;
  std::vector<size_t> order_;
  std::vector<Edges> edges_;   // of the range that is divided, sorted
  std::vector<Range> ranges_;  // that are left
};

}  // namespace ddp::shards

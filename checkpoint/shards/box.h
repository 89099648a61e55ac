// A rectangular part of a tensor. No LibTorch.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "checkpoint/shards/dim_vector.h"

namespace ddp::shards {

/// The elements from `offsets` on, `sizes` of them along each dimension; both have one entry per dimension of the
/// tensor. Reference: ChunkStorageMetadata of torch.distributed.checkpoint.
struct Box {
  DimVector offsets{};
  DimVector sizes{};

  bool operator==(const Box&) const = default;
};

/// The whole of a tensor of `shape`.
Box whole(const std::vector<int64_t>& shape);

/// Number of elements. Sizes must not overflow: see is_inside().
int64_t numel(const Box& box);

/// Whether `box` is a part of a tensor of `shape`: as many dimensions, nothing negative, nothing beyond the end.
bool is_inside(const Box& box, const std::vector<int64_t>& shape);

/// Whether both have an element in common. Both have the same number of dimensions.
bool have_common_part(const Box& left, const Box& right);

/// The elements that both have, or nullopt. Both have the same number of dimensions.
std::optional<Box> common_part(const Box& left, const Box& right);

/// The elements of `part` as runs that lie one after the other both in `from` and in `to`, which hold their elements in
/// row-major order and contain `part`.
class Runs {
 public:
  Runs(const Box& part, const Box& from, const Box& to);

  struct Run {
    int64_t from = 0;   ///< first element, counted from the beginning of `from`
    int64_t to = 0;     ///< … of `to`
    int64_t count = 0;  ///< elements
  };

  /// Number of runs, 0 for a part without elements; the positions in `from` and in `to` both grow with the number of
  /// the run.
  int64_t size() const { return count_; }
  Run operator[](int64_t index) const;

  /// The number of runs from any multiple of it on that follow each other with at most `gap` elements of `from` between
  /// two of them; size() is a multiple of it. At least 1.
  int64_t neighbours(int64_t gap) const;

 private:
  struct Dimension {
    int64_t size = 0;
    int64_t from_stride = 0;
    int64_t to_stride = 0;
  };

  int64_t count_ = 1;
  int64_t run_ = 1;   // elements of a run
  int64_t from_ = 0;  // of the first run
  int64_t to_ = 0;
  std::vector<Dimension> outer_;  // over which the runs are counted, the last one fastest
};

}  // namespace ddp::shards

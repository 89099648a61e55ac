#include "fsdp/core/shard_layout.h"

#include <algorithm>

namespace ddp::fsdp {

ShardLayout::ShardLayout(int64_t rows, int64_t row_numel, int ranks)
    : rows_(rows), row_numel_(row_numel), ranks_(ranks), chunk_rows_((rows + ranks - 1) / ranks) {}

int64_t ShardLayout::first_row(int rank) const {
  return std::min(rows_, chunk_rows_ * rank);
}

int64_t ShardLayout::rows_of(int rank) const {
  return std::min(rows_, chunk_rows_ * (rank + 1)) - first_row(rank);
}

}  // namespace ddp::fsdp

// How a parameter is divided over ranks: rows of dimension 0 in chunks, as torch.chunk() makes them. Does not use
// LibTorch.
#pragma once

#include <cstdint>

namespace ddp::fsdp {

/// A tensor of `rows` rows of `row_numel` elements over `ranks` ranks: each rank has a chunk of chunk_rows() rows,
/// later ranks have fewer or none. In messages each chunk has the size of the first, with unused elements at its end,
/// so that the chunks of all ranks, one after the other, begin with the whole tensor.
class ShardLayout {
 public:
  ShardLayout(int64_t rows, int64_t row_numel, int ranks);

  /// Rows of a full chunk.
  int64_t chunk_rows() const { return chunk_rows_; }
  /// Elements of a chunk in messages.
  int64_t chunk_numel() const { return chunk_rows_ * row_numel_; }
  /// Elements of all chunks in messages, at least those of the tensor.
  int64_t padded_numel() const { return chunk_numel() * ranks_; }
  /// The first row of `rank`'s chunk; that of an empty chunk is the number of rows.
  int64_t first_row(int rank) const;
  /// The rows that `rank` has.
  int64_t rows_of(int rank) const;
  /// The elements that `rank` has.
  int64_t numel_of(int rank) const { return rows_of(rank) * row_numel_; }
  /// Elements of a row.
  int64_t row_numel() const { return row_numel_; }
  int64_t rows() const { return rows_; }

 private:
  int64_t rows_;
  int64_t row_numel_;
  int ranks_;
  int64_t chunk_rows_;
};

}  // namespace ddp::fsdp

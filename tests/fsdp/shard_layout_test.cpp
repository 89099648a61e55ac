#include "fsdp/core/shard_layout.h"

#include <catch2/catch_test_macros.hpp>

namespace ddp::fsdp {
namespace {

TEST_CASE("ShardLayout: chunks are those of torch.chunk()") {
  const ShardLayout seven(7, 5, 3);
  CHECK(seven.chunk_rows() == 3);
  CHECK(seven.chunk_numel() == 15);
  CHECK(seven.padded_numel() == 45);
  CHECK(seven.first_row(1) == 3);
  CHECK(seven.rows_of(0) == 3);
  CHECK(seven.rows_of(1) == 3);
  CHECK(seven.rows_of(2) == 1);
  CHECK(seven.numel_of(2) == 5);
}

TEST_CASE("ShardLayout: ranks beyond the rows have none") {
  const ShardLayout two(2, 3, 4);
  CHECK(two.chunk_rows() == 1);
  CHECK(two.rows_of(1) == 1);
  CHECK(two.rows_of(2) == 0);
  CHECK(two.first_row(3) == 2);
  // Five rows over four ranks: chunks of two, the last rank has none.
  const ShardLayout five(5, 1, 4);
  CHECK(five.rows_of(2) == 1);
  CHECK(five.rows_of(3) == 0);
}

TEST_CASE("ShardLayout: a tensor without elements") {
  const ShardLayout empty(0, 0, 2);
  CHECK(empty.padded_numel() == 0);
  CHECK(empty.rows_of(1) == 0);
}

TEST_CASE("ShardLayout: the chunks cover all rows once") {
  for (int ranks = 1; ranks < 9; ++ranks) {
    for (int64_t rows = 0; rows < 30; ++rows) {
      const ShardLayout layout(rows, 2, ranks);
      int64_t next = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        CHECK(layout.first_row(rank) == next);
        next += layout.rows_of(rank);
        CHECK(layout.rows_of(rank) <= layout.chunk_rows());
      }
      CHECK(next == rows);
    }
  }
}

}  // namespace
}  // namespace ddp::fsdp

#include "fsdp/core/gradient_division.h"

#include <catch2/catch_test_macros.hpp>

namespace ddp::fsdp {
namespace {

TEST_CASE("GradientDivision: the backend averages what cannot overflow") {
  const GradientDivision division = division_of({.shards = 4, .replicas = 2});
  CHECK(division.scatter_averages);
  CHECK(division.all_reduce_averages);
  CHECK(division.before == 1);
  CHECK(division.multiplied == 1);
  CHECK(division.after == 1);
  CHECK(!division_of({}).scatter_averages);
}

TEST_CASE("GradientDivision: a factor other than the number of shards is multiplied in before the sum") {
  const GradientDivision division = division_of({.shards = 4, .replicas = 2, .factor = 5});
  CHECK(!division.scatter_averages);
  CHECK(!division.all_reduce_averages);
  CHECK(division.multiplied == 1.0 / 5);
  CHECK(division.after == 1);
  const GradientDivision equal = division_of({.shards = 4, .replicas = 2, .factor = 4});
  CHECK(equal.scatter_averages);
  CHECK(!equal.all_reduce_averages);
  CHECK(equal.multiplied == 1);
}

TEST_CASE("GradientDivision: a rank that has all shards divides, once") {
  CHECK(division_of({.replicas = 2, .factor = 5}).before == 5);
  CHECK(division_of({.replicas = 2, .factor = 5}).after == 1);
  CHECK(division_of({.only_sums = true, .factor = 5}).before == 1);
  CHECK(division_of({.only_sums = true, .factor = 5}).after == 5);
}

// Of Python's loop, for 8, 6 and 7 ranks.
TEST_CASE("GradientDivision: what may overflow is divided in two parts around the sum") {
  const auto check = [](int ranks, double before, double after) {
    const GradientDivision division = division_of({.shards = ranks, .may_overflow = true});
    CHECK(division.before == before);
    CHECK(division.after == after);
    CHECK(!division.scatter_averages);
  };
  check(8, 4, 2);
  check(6, 4, 1.5);
  check(7, 2, 3.5);
  check(1, 1, 1);
}

}  // namespace
}  // namespace ddp::fsdp

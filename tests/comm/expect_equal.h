// What the tests of collectives say of a result.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "tests/support/rank_checks.h"
#include "tests/support/tensors.h"

namespace ddp::test {

/// Of the same dtype and shape, with the same numbers.
inline void expect_equal(const at::Tensor& actual, const at::Tensor& expected, const std::string& what = "") {
  RANK_INFO(what);
  RANK_REQUIRE(actual.defined());
  RANK_CHECK(actual.scalar_type() == expected.scalar_type());
  RANK_CHECK(actual.sizes() == expected.sizes());
  RANK_CHECK_THAT(actual, EqualsTensor(expected));
}

}  // namespace ddp::test

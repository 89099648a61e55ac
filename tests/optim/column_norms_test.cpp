#include "optim/column_norms.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/randn.h>

#include <limits>
#include <vector>

#include "tests/optim/numbers.h"
#include "tests/support/catch.h"

namespace ddp::optim {
namespace {

using test::expect_same_bits;

void expect_bits_of_aten(const at::Tensor& tensor) {
  expect_same_bits({column_norms(tensor)}, {at::linalg_vector_norm(tensor, 2, -2, /*keepdim=*/true)});
}

TEST_CASE("column_norms: the bits of ATen's norms for all shapes, dtypes and layouts") {
  const auto dtype = GENERATE(at::kFloat, at::kDouble, at::kBFloat16);
  const std::vector<std::vector<int64_t>> shapes = {{1, 1},     {8, 8},      {3, 1},       {1, 70},   {40000, 1},
                                                    {33000, 2}, {129, 1031}, {4, 3, 5, 7}, {3, 0, 4}, {5, 4, 0}};
  for (const auto& shape : shapes) {
    CAPTURE(shape, dtype);
    const at::Tensor tensor = at::randn(shape).to(dtype);
    expect_bits_of_aten(tensor);
    expect_bits_of_aten(tensor.transpose(0, 1));
    expect_bits_of_aten(at::randn(shape).mul_(1e-22).to(dtype));
  }
}

TEST_CASE("column_norms: infinities and NaN are those of ATen") {
  at::Tensor tensor = at::randn({6, 5});
  tensor[2][0] = std::numeric_limits<float>::infinity();
  tensor[3][1] = 3e38F;
  tensor[4][2] = std::numeric_limits<float>::quiet_NaN();
  const at::Tensor found = column_norms(tensor), expected = at::linalg_vector_norm(tensor, 2, -2, /*keepdim=*/true);
  CHECK(at::equal(found.isnan(), expected.isnan()));
  expect_same_bits({found.nan_to_num()}, {expected.nan_to_num()});
}

}  // namespace
}  // namespace ddp::optim

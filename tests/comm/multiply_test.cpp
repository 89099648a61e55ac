#include "comm/multiply.h"

#include <ATen/ops/arange.h>
#include <gtest/gtest.h>

namespace ddp {
namespace {

TEST(Multiply, rounds_16_bits_once) {
  for (const auto dtype : {at::kHalf, at::kBFloat16}) {
    const auto values = at::arange(1, 1000, at::TensorOptions(dtype));
    for (const double factor : {1.0 / 3, 0.9, 1 / 0.7, 0.5, 1.0}) {
      const auto product = values.clone();
      multiply(product, factor);
      EXPECT_TRUE(product.equal(values.to(at::kFloat).mul(factor).to(dtype))) << dtype << " times " << factor;
    }
  }
}

TEST(Multiply, keeps_the_bits_of_wider_types) {
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    const auto values = at::arange(1, 1000, at::TensorOptions(dtype));
    const auto product = values.clone();
    multiply(product, 1.0 / 3);
    EXPECT_TRUE(product.equal(values.mul(1.0 / 3)));
  }
}

}  // namespace
}  // namespace ddp

#include "comm/group/multiply.h"

#include <ATen/ops/arange.h>

#include "tests/support/catch.h"

namespace ddp {
namespace {

TEST_CASE("Multiply: rounds 16 bits once") {
  for (const auto dtype : {at::kHalf, at::kBFloat16}) {
    const auto values = at::arange(1, 1000, at::TensorOptions(dtype));
    for (const double factor : {1.0 / 3, 0.9, 1 / 0.7, 0.5, 1.0}) {
      const auto product = values.clone();
      multiply(product, factor);
      INFO(dtype << " times " << factor);
      CHECK(product.equal(values.to(at::kFloat).mul(factor).to(dtype)));
    }
  }
}

TEST_CASE("Multiply: keeps the bits of wider types") {
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    const auto values = at::arange(1, 1000, at::TensorOptions(dtype));
    const auto product = values.clone();
    multiply(product, 1.0 / 3);
    CHECK(product.equal(values.mul(1.0 / 3)));
  }
}

}  // namespace
}  // namespace ddp

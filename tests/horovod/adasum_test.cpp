// The adaptive sum against its formula, term by term in double precision, and what it must keep to.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include <ddprun/comm/collectives.h>

#include "ddprun/horovod/horovod.h"
#include "tests/support/catch.h"
#include "tests/support/errors.h"
#include "tests/support/every_wire.h"
#include "tests/support/placement.h"
#include "tests/support/rank_checks.h"
#include "tests/support/tensors.h"

namespace ddp::horovod {
namespace {

using Catch::Matchers::ContainsSubstring;
using test::EqualsTensor;
using test::error_of;
using test::here;
using test::IsCloseTo;

// The paper's formula, with plain loops.
at::Tensor by_the_formula(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = a.cpu().to(at::kDouble).contiguous();
  const at::Tensor y = b.cpu().to(at::kDouble).contiguous();
  const auto* p = x.const_data_ptr<double>();
  const auto* q = y.const_data_ptr<double>();
  double dot = 0;
  double p_norm = 0;
  double q_norm = 0;
  for (int64_t i = 0; i < x.numel(); ++i) {
    dot += p[i] * q[i];
    p_norm += p[i] * p[i];
    q_norm += q[i] * q[i];
  }
  const double p_factor = p_norm > 0 ? 1 - dot / (2 * p_norm) : 1;
  const double q_factor = q_norm > 0 ? 1 - dot / (2 * q_norm) : 1;
  return (x * p_factor + y * q_factor).to(a.scalar_type());
}

TEST_CASE("Adasum: is the formula of the paper for random vectors of every dtype and shape") {
  auto generator = at::detail::createCPUGenerator(7);
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
    const double tolerance = dtype == at::kDouble ? 1e-12 : dtype == at::kFloat ? 1e-6 : 1e-2;
    for (const std::vector<int64_t>& shape : {std::vector<int64_t>{}, {1}, {0}, {7}, {2, 3, 4}}) {
      for (int round = 0; round < 5; ++round) {
        const at::Tensor a = here(at::randn(shape, generator)).to(dtype);
        const at::Tensor b = here(at::randn(shape, generator)).mul(std::pow(10., round - 2)).to(dtype);
        CHECK_THAT(adasum(a, b), IsCloseTo(by_the_formula(a, b), tolerance, tolerance));
        UNSCOPED_INFO("and does not depend on which one comes first, up to rounding");
        CHECK_THAT(adasum(b, a), IsCloseTo(adasum(a, b), tolerance, tolerance));
      }
    }
  }
}

TEST_CASE("Adasum: sums of products that no float holds do not overflow") {
  const at::Tensor large = here(at::full({4}, 1e30F));  // whose square is above the largest float
  CHECK_THAT(adasum(large, large), IsCloseTo(large, 1e-6, 0));
  const at::Tensor small = here(at::full({4}, 1e-30F));  // whose square is below the smallest one
  CHECK_THAT(adasum(small, small), IsCloseTo(small, 1e-6, 0));
  CHECK_THAT(adasum(large, -large), IsCloseTo(at::zeros({4}), 0, 0));
}

TEST_CASE("Adasum: zero vectors leave the other one, bit for bit") {
  const at::Tensor a = here(at::tensor({1.F, -0.3333333F, 1e-38F, 3e38F}));
  CHECK(at::equal(adasum(a, here(at::zeros({4}))), a));
  CHECK(at::equal(adasum(here(at::zeros({4})), a), a));
  CHECK(at::equal(adasum(here(at::zeros({4})), here(at::zeros({4}))), here(at::zeros({4}))));
}

TEST_CASE("Adasum: what is no number stays visible") {
  const float kNaN = std::numeric_limits<float>::quiet_NaN();
  CHECK(adasum(here(at::tensor({1.F, kNaN})), here(at::ones({2}))).isnan().any().item<bool>());
  CHECK_FALSE(adasum(here(at::full({2}, std::numeric_limits<float>::infinity())), here(at::ones({2})))
                  .isfinite()
                  .all()
                  .item<bool>());
}

class AdasumRanks : protected test::EveryWire {};
TEST_CASE_METHOD(AdasumRanks, "Adasum: every rank gets the same bits, each tensor by itself") {
  const int size = GENERATE(1, 2, 4);
  run(size, [](const GroupHandle& group) {
    auto generator = at::detail::createCPUGenerator(static_cast<uint64_t>(group.rank()) + 11);
    const auto make = [&] {
      return std::vector<at::Tensor>{here(at::randn({3, 5}, generator)), here(at::randn({}, generator)).to(at::kDouble),
                                     here(at::zeros({0})), here(at::randn({4, 2}, generator)).t(),
                                     here(at::randn({9}, generator)).to(at::kHalf).requires_grad_()};
    };
    const std::vector<at::Tensor> tensors = make();
    std::vector<at::Tensor> expected;
    for (const at::Tensor& tensor : tensors) {
      std::vector<at::Tensor> all;
      const at::Tensor stacked = all_gather(tensor.detach().contiguous(), group);
      for (int rank = 0; rank < group.size(); ++rank) all.push_back(stacked[rank]);
      for (size_t left = all.size(); left > 1; left /= 2) {
        for (size_t i = 0; i < left / 2; ++i) all[i] = by_the_formula(all[2 * i], all[2 * i + 1]);
      }
      expected.push_back(all[0]);
    }
    adasum_allreduce(tensors, group);
    for (size_t i = 0; i < tensors.size(); ++i) {
      RANK_INFO("tensor " << i);
      const double tolerance = tensors[i].scalar_type() == at::kHalf ? 1e-2 : 1e-5;
      RANK_CHECK_THAT(tensors[i].detach(), IsCloseTo(expected[i], tolerance, tolerance));
      const at::Tensor all = all_gather(tensors[i].detach().contiguous(), group);
      for (int rank = 0; rank < group.size(); ++rank) RANK_CHECK(at::equal(all[rank], all[0]));
    }
    adasum_allreduce({}, group);
  });
}

TEST_CASE_METHOD(AdasumRanks, "Adasum: what it cannot do is refused on every rank before anything is sent") {
  run(3, [](const GroupHandle& group) {
    const std::string me = "rank " + std::to_string(group.rank()) + " of 3: ";
    RANK_CHECK_THAT(error_of<std::invalid_argument>([&] { adasum_allreduce({here(at::ones({2}))}, group); }),
                    ContainsSubstring(me + "Adasum needs a power of two"));
  });
  run(2, [](const GroupHandle& group) {
    const std::string me = "rank " + std::to_string(group.rank()) + " of 2: ";
    for (const at::Tensor& bad :
         {here(at::ones({2}, at::kLong)), here(at::ones({2}, at::kBool)), at::Tensor(),
          here(at::ones({2}, at::kComplexFloat)), at::ones({2, 2}).to_sparse(), here(at::ones({1})).expand({3})}) {
      const at::Tensor good = here(at::ones({2}));
      RANK_CHECK_THAT(error_of<std::invalid_argument>([&] {
                        adasum_allreduce({good, bad}, group);
                      }),
                      ContainsSubstring(me));
      RANK_CHECK_THAT(good, EqualsTensor(at::ones({2})));
    }
    const at::Tensor good = here(at::ones({2}));
    adasum_allreduce({good}, group);
    RANK_CHECK_THAT(good, EqualsTensor(at::ones({2})));
  });
}

TEST_CASE("Adasum: two vectors have one shape and one floating point dtype") {
  CHECK_THROWS_AS(adasum(here(at::ones({2})), here(at::ones({3}))), std::invalid_argument);
  CHECK_THROWS_AS(adasum(here(at::ones({2})), here(at::ones({1}))), std::invalid_argument);
  CHECK_THROWS_AS(adasum(here(at::ones({2})), here(at::ones({2}, at::kDouble))), std::invalid_argument);
  CHECK_THROWS_AS(adasum(here(at::ones({2}, at::kLong)), here(at::ones({2}, at::kLong))), std::invalid_argument);
  CHECK_THROWS_AS(adasum(at::Tensor(), here(at::ones({2}))), std::invalid_argument);
}

}  // namespace
}  // namespace ddp::horovod

// Buckets of gradients that travel while a backward runs: what is planned, and what reaches the parameters.
#include "horovod/gradient_buckets.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

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

at::Tensor parameter_of(at::IntArrayRef shape, at::ScalarType dtype = at::kFloat) {
  return here(at::zeros(shape, dtype)).requires_grad_();
}

int64_t bytes_of(const std::vector<at::Tensor>& parameters, const std::vector<size_t>& members) {
  int64_t bytes = 0;
  for (const size_t i : members) bytes += static_cast<int64_t>(parameters[i].nbytes());
  return bytes;
}

TEST_CASE("BucketPlan: random models are split without loss, by dtype and size, in the order of completion") {
  std::mt19937 random(5);
  const auto number = [&](int most) { return static_cast<int>(random() % static_cast<unsigned>(most)); };
  const at::ScalarType dtypes[] = {at::kFloat, at::kHalf, at::kDouble};
  for (int round = 0; round < 300; ++round) {
    std::vector<at::Tensor> parameters;
    for (int i = number(12); i > 0; --i) parameters.push_back(parameter_of({number(40), 2}, dtypes[number(3)]));
    std::vector<size_t> places(parameters.size());
    for (size_t i = 0; i < places.size(); ++i) places[i] = i;
    std::ranges::shuffle(places, random);
    BucketPlan groups;
    for (size_t i = 0; i + 2 < places.size() && number(2) == 0; i += 2) groups.push_back({places[i], places[i + 1]});
    const int64_t most = 1 + number(400);
    const BucketPlan plan = plan_buckets(parameters, groups, most);

    std::multiset<size_t> placed;
    size_t before = parameters.size();
    for (const auto& members : plan) {
      REQUIRE_FALSE(members.empty());
      placed.insert(members.begin(), members.end());
      for (const size_t i : members) CHECK(parameters[i].scalar_type() == parameters[members[0]].scalar_type());
      const bool is_group = std::ranges::any_of(
          groups, [&](const auto& group) { return std::ranges::find(group, members[0]) != group.end(); });
      if (!is_group && members.size() > 1) CHECK(bytes_of(parameters, members) <= most);
      const size_t completes = std::ranges::min(members);
      CHECK(completes < before);
      before = completes;
    }
    CHECK(placed.size() == parameters.size());
    CHECK(std::set(placed.begin(), placed.end()).size() == parameters.size());
    for (const auto& group : groups) {
      if (parameters[group[0]].scalar_type() != parameters[group[1]].scalar_type()) continue;
      CHECK(
          std::ranges::any_of(plan, [&](const auto& members) { return std::ranges::is_permutation(members, group); }));
    }
  }
}

class Buckets : protected test::EveryWireAndSize {};

TEST_CASE_METHOD(Buckets, "GradientBuckets: gradients may become ready in any order, another one on each rank") {
  run([](const GroupHandle& group) {
    std::mt19937 random(static_cast<unsigned>(group.rank()));
    const float n = static_cast<float>(group.size());
    std::vector<at::Tensor> parameters{parameter_of({3}), parameter_of({}),     parameter_of({2, 2}, at::kDouble),
                                       parameter_of({0}), parameter_of({5, 1}), parameter_of({4}, at::kHalf)};
    GradientBuckets buckets(parameters, plan_buckets(parameters, {}, 20), group, {});
    for (int step = 1; step <= 5; ++step) {
      std::vector<size_t> order{0, 1, 2, 3, 4, 5};
      std::ranges::shuffle(order, random);
      for (const size_t i : order) {
        parameters[i].mutable_grad() =
            at::full_like(parameters[i].detach(), static_cast<double>(step) * (group.rank() + 1));
        if (i != 4 || step % 2 == 0) buckets.gradient_ready(i);  // finish() takes what nobody has reported
      }
      buckets.finish();
      for (const at::Tensor& p : parameters) {
        RANK_CHECK_THAT(p.grad(), EqualsTensor(at::full_like(p.detach(), step * (n + 1) / 2)));
      }
    }
  });
}

TEST_CASE_METHOD(Buckets, "GradientBuckets: gradients of any layout are reduced where they are") {
  run([](const GroupHandle& group) {
    const float n = static_cast<float>(group.size());
    std::vector<at::Tensor> parameters{parameter_of({2, 3}), parameter_of({2, 3})};
    GradientBuckets buckets(parameters, {{0, 1}}, group, {.average = false});
    const at::Tensor transposed = here(at::ones({3, 2})).t();
    parameters[0].mutable_grad() = transposed;
    buckets.finish();
    RANK_CHECK(parameters[0].grad().is_same(transposed));
    RANK_CHECK_THAT(transposed, EqualsTensor(at::full({2, 3}, n)));
    RANK_CHECK_THAT(parameters[1].grad(), EqualsTensor(at::zeros({2, 3})));
  });
}

TEST_CASE_METHOD(Buckets, "GradientBuckets: gradients that travel in 16 bits come back in their own dtype") {
  for (const at::ScalarType wire : {at::kHalf, at::kBFloat16}) {
    run([&](const GroupHandle& group) {
      std::vector<at::Tensor> parameters{parameter_of({3}), parameter_of({2}, at::kDouble)};
      GradientBuckets buckets(parameters, plan_buckets(parameters, {}, 100), group,
                              {.predivide_factor = 2, .wire_dtype = wire});
      for (const at::Tensor& p : parameters) p.mutable_grad() = at::full_like(p.detach(), group.rank() + 1.);
      buckets.finish();
      const double mean = (group.size() + 1) / 2.;
      for (const at::Tensor& p : parameters) {
        RANK_CHECK(p.grad().scalar_type() == p.scalar_type());
        RANK_CHECK_THAT(p.grad(), test::IsCloseTo(at::full_like(p.detach(), mean), 1e-2, 0));
      }
    });
  }
}

// What has been sent before a step fails still uses its memory; the next step's gradients may not lie there.
TEST_CASE_METHOD(Buckets, "GradientBuckets: a step that fails leaves nothing behind in the next ones") {
  run([](const GroupHandle& group) {
    const float n = static_cast<float>(group.size());
    std::vector<at::Tensor> parameters{parameter_of({2, 2}), parameter_of({1000})};
    GradientBuckets buckets(parameters, {{1}, {0}}, group, {.average = false});
    for (int round = 1; round <= 10; ++round) {
      parameters[1].mutable_grad() = here(at::full({1000}, 1000.F));
      buckets.gradient_ready(1);  // under way
      parameters[0].mutable_grad() = here(at::ones({2, 2})).to_sparse();
      RANK_CHECK_THAT(error_of<std::runtime_error>([&] { buckets.finish(); }),
                      ContainsSubstring("rank " + std::to_string(group.rank()) + " of ") &&
                          ContainsSubstring("parameter number 0 has a sparse gradient"));
      parameters[0].mutable_grad() = here(at::ones({2, 2}));
      parameters[1].mutable_grad() = here(at::full({1000}, static_cast<float>(round)));
      buckets.finish();
      RANK_CHECK_THAT(parameters[0].grad(), EqualsTensor(at::full({2, 2}, n)));
      RANK_CHECK_THAT(parameters[1].grad(), EqualsTensor(at::full({1000}, n * static_cast<float>(round))));
    }
  });
}

}  // namespace
}  // namespace ddp::horovod

// Which random numbers ranks draw.
#include <ATen/ops/equal.h>
#include <ATen/ops/rand.h>

#include <functional>
#include <vector>

#include <ddprun/comm/manual_seed.h>

#include "tests/comm/expect_equal.h"
#include "tests/support/catch.h"
#include "tests/support/placement.h"
#include "tests/support/ranks.h"

namespace ddp {
namespace {

using test::expect_equal;
using test::here;

// Ranks one after the other, since threads share the default generator.
std::vector<at::Tensor> draws(int size, const std::function<void(const GroupHandle& group)>& seed) {
  std::vector<at::Tensor> result;
  for (int rank = 0; rank < size; ++rank) {
    seed(test::unconnected_rank(rank, size));
    result.push_back(here(at::rand({8})));
  }
  return result;
}

TEST_CASE("ManualSeed: gives all ranks equal numbers until each takes a stream of its own") {
  const auto equal = draws(4, [](const GroupHandle& group) { manual_seed(17, group); });
  for (const at::Tensor& numbers : equal) expect_equal(numbers, equal[0]);

  const auto own = draws(4, [](const GroupHandle& group) {
    manual_seed(17, group);
    take_rank_stream(group);
  });
  for (size_t a = 0; a < own.size(); ++a) {
    CHECK_FALSE(at::equal(own[a], equal[0]));
    for (size_t b = 0; b < a; ++b) {
      INFO(a << " and " << b);
      CHECK_FALSE(at::equal(own[a], own[b]));
    }
  }
  const auto again = draws(4, [](const GroupHandle& group) { seed_per_rank(17, group); });
  for (size_t rank = 0; rank < own.size(); ++rank) expect_equal(again[rank], own[rank], "same seed and rank");
}

TEST_CASE("ManualSeed: of neighbouring seeds gives no rank the stream of another") {
  const auto first = draws(4, [](const GroupHandle& group) { seed_per_rank(0, group); });
  const auto second = draws(4, [](const GroupHandle& group) { seed_per_rank(1, group); });
  for (const at::Tensor& a : first) {
    for (const at::Tensor& b : second) CHECK_FALSE(at::equal(a, b));
  }
}

TEST_CASE("ManualSeed: streams do not depend on the world size") {
  const auto of_two = draws(2, [](const GroupHandle& group) { seed_per_rank(5, group); });
  const auto of_four = draws(4, [](const GroupHandle& group) { seed_per_rank(5, group); });
  for (size_t rank = 0; rank < of_two.size(); ++rank) expect_equal(of_two[rank], of_four[rank]);
}

TEST_CASE("ManualSeed: is used up by the first taker") {
  const GroupHandle group = test::unconnected_rank(1, 2);
  manual_seed(3, group);
  take_rank_stream(group);
  const at::Tensor first = here(at::rand({8}));
  take_rank_stream(group);
  CHECK_FALSE(at::equal(here(at::rand({8})), first));
}

}  // namespace
}  // namespace ddp

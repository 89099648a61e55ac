// Orders without LibTorch against what PyTorch 2.11 gives.
#include <stdexcept>

#include <ddprun/samplers/shard.h>

#include "tests/samplers/expected.h"
#include "tests/support/catch.h"
#include "tests/support/matchers.h"

namespace ddp {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::IsEmpty;
using Catch::Matchers::MessageMatches;
using nlohmann::json;
using test::ElementsAre;

TEST_CASE("Permutation: is Python's randperm for any seed") {
  const json expected = test::expected_orders();
  REQUIRE(expected.at("randperm").size() == 36U);
  for (const json& c : expected.at("randperm")) {
    INFO(c.dump());
    CHECK(permutation(c.at("n"), c.at("seed")) == c.at("perm").get<std::vector<int64_t>>());
  }
  REQUIRE(expected.at("randperm_big").size() == 9U);
  for (const json& c : expected.at("randperm_big")) {
    INFO(c.dump());
    const std::vector<int64_t> order = permutation(c.at("n"), c.at("seed"));
    REQUIRE(order.size() == c.at("n").get<size_t>());
    test::expect_digest(order, c);
  }
}

TEST_CASE("Permutation: sharded is Python's DistributedSampler in every case") {
  const json expected = test::expected_orders();
  REQUIRE(expected.at("cases").size() == 560U);
  for (const json& c : expected.at("cases")) {
    INFO(c.dump());
    const int world = c.at("world");
    const uint64_t seed = c.at("seed").get<uint64_t>() + c.at("epoch").get<uint64_t>();
    const std::vector<int64_t> order = c.at("shuffle") ? permutation(c.at("n"), seed) : ascending(c.at("n"));
    for (int rank = 0; rank < world; ++rank) {
      const Sharding sharding{
          .num_replicas = world, .rank = rank, .tail = c.at("drop_last") ? Tail::kDrop : Tail::kRepeat};
      const std::vector<int64_t> indices = shard(order, sharding);
      REQUIRE(static_cast<int64_t>(indices.size()) == c.at("num_samples").get<int64_t>());
      if (c.at("ranks").is_null()) {
        test::expect_digest(indices, c.at("rank_digest").at(static_cast<size_t>(rank)));
      } else {
        REQUIRE(indices == c.at("ranks").at(static_cast<size_t>(rank)).get<std::vector<int64_t>>());
      }
    }
  }
}

// list(torch.utils.data.RandomSampler(range(n), replacement, count, generator=g)) after g.manual_seed(3)
TEST_CASE("RandomOrder: is Python's RandomSampler") {
  CHECK_THAT(random_order(5, 12, 3), ElementsAre(1, 0, 3, 4, 2, 0, 1, 2, 4, 3, 1, 4));
  CHECK_THAT(random_order(5, 3, 3), ElementsAre(1, 0, 3));
  CHECK(random_order(100, 100, 7) == permutation(100, 7));
  CHECK_THAT(random_order(5, 0, 3), IsEmpty());
}

TEST_CASE("RandomDraws: are Python's RandomSampler with replacement") {
  CHECK_THAT(random_draws(10, 12, 3), ElementsAre(6, 8, 7, 7, 0, 0, 0, 5, 1, 9, 4, 1));
  CHECK_THAT(random_draws(10'000'000'000, 4, 3), ElementsAre(8662282904, 5730866819, 5481424840, 3066854165));
}

TEST_CASE("RandomDraws: out of nothing are refused") {
  CHECK_THROWS_MATCHES(random_draws(0, 3, 0), std::invalid_argument,
                       MessageMatches(ContainsSubstring("3 samples out of 0")));
  CHECK_THROWS_AS(random_order(0, 1, 0), std::invalid_argument);
  CHECK_THROWS_AS(ascending(-1), std::invalid_argument);
  CHECK_THAT(random_draws(0, 0, 0), IsEmpty());
}

}  // namespace
}  // namespace ddp

// Orders without LibTorch against what PyTorch 2.11 gives.
#include "samplers/permutation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "samplers/shard.h"
#include "tests/samplers/expected.h"

namespace ddp {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::ThrowsMessage;

TEST(Permutation, is_randperm_of_python_for_any_seed) {
  const json expected = testing::expected_orders();
  ASSERT_EQ(expected.at("randperm").size(), 36U);
  for (const json& c : expected.at("randperm")) {
    EXPECT_EQ(permutation(c.at("n"), c.at("seed")), c.at("perm").get<std::vector<int64_t>>()) << c.dump();
  }
  ASSERT_EQ(expected.at("randperm_big").size(), 9U);
  for (const json& c : expected.at("randperm_big")) {
    SCOPED_TRACE(c.dump());
    const std::vector<int64_t> order = permutation(c.at("n"), c.at("seed"));
    ASSERT_EQ(order.size(), c.at("n").get<size_t>());
    testing::expect_digest(order, c);
  }
}

TEST(Permutation, sharded_is_distributed_sampler_of_python_in_every_case) {
  const json expected = testing::expected_orders();
  ASSERT_EQ(expected.at("cases").size(), 560U);
  for (const json& c : expected.at("cases")) {
    SCOPED_TRACE(c.dump());
    const int world = c.at("world");
    const uint64_t seed = c.at("seed").get<uint64_t>() + c.at("epoch").get<uint64_t>();
    const std::vector<int64_t> order = c.at("shuffle") ? permutation(c.at("n"), seed) : ascending(c.at("n"));
    for (int rank = 0; rank < world; ++rank) {
      const Sharding sharding{
          .num_replicas = world, .rank = rank, .tail = c.at("drop_last") ? Tail::kDrop : Tail::kRepeat};
      const std::vector<int64_t> indices = shard(order, sharding);
      ASSERT_EQ(static_cast<int64_t>(indices.size()), c.at("num_samples").get<int64_t>());
      if (c.at("ranks").is_null()) {
        testing::expect_digest(indices, c.at("rank_digest").at(static_cast<size_t>(rank)));
      } else {
        ASSERT_EQ(indices, c.at("ranks").at(static_cast<size_t>(rank)).get<std::vector<int64_t>>());
      }
    }
  }
}

// list(torch.utils.data.RandomSampler(range(n), replacement, count, generator=g)) after g.manual_seed(3)
TEST(RandomOrder, is_random_sampler_of_python) {
  EXPECT_THAT(random_order(5, 12, 3), ElementsAre(1, 0, 3, 4, 2, 0, 1, 2, 4, 3, 1, 4));
  EXPECT_THAT(random_order(5, 3, 3), ElementsAre(1, 0, 3));
  EXPECT_EQ(random_order(100, 100, 7), permutation(100, 7));
  EXPECT_THAT(random_order(5, 0, 3), IsEmpty());
}

TEST(RandomDraws, are_random_sampler_of_python_with_replacement) {
  EXPECT_THAT(random_draws(10, 12, 3), ElementsAre(6, 8, 7, 7, 0, 0, 0, 5, 1, 9, 4, 1));
  EXPECT_THAT(random_draws(10'000'000'000, 4, 3), ElementsAre(8662282904, 5730866819, 5481424840, 3066854165));
}

TEST(RandomDraws, out_of_nothing_are_refused) {
  EXPECT_THAT([] { random_draws(0, 3, 0); }, ThrowsMessage<std::invalid_argument>(HasSubstr("3 samples out of 0")));
  EXPECT_THROW(random_order(0, 1, 0), std::invalid_argument);
  EXPECT_THROW(ascending(-1), std::invalid_argument);
  EXPECT_THAT(random_draws(0, 0, 0), IsEmpty());
}

}  // namespace
}  // namespace ddp

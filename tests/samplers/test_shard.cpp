#include "samplers/shard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <stdexcept>

namespace ddp {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Throws;
using testing::ThrowsMessage;

std::vector<int64_t> shuffled(int64_t n, uint32_t seed) {
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), int64_t{0});
  std::shuffle(order.begin(), order.end(), std::mt19937(seed));
  return order;
}

TEST(Shard, takes_every_world_th_sample_of_the_order) {
  const std::vector<int64_t> order = {5, 3, 1, 4, 2, 0};
  EXPECT_THAT(shard(order, 2, 0, false), ElementsAre(5, 1, 2));
  EXPECT_THAT(shard(order, 2, 1, false), ElementsAre(3, 4, 0));
}

TEST(Shard, repeats_from_the_start_of_the_order_where_the_ranks_do_not_divide) {
  const std::vector<int64_t> order = {5, 3, 1, 4};
  EXPECT_THAT(shard(order, 3, 0, false), ElementsAre(5, 4));
  EXPECT_THAT(shard(order, 3, 1, false), ElementsAre(3, 5));
  EXPECT_THAT(shard(order, 3, 2, false), ElementsAre(1, 3));
}

TEST(Shard, repeats_as_often_as_needed_when_there_are_more_ranks_than_samples) {
  const std::vector<int64_t> order = {1, 0};
  for (int rank = 0; rank < 7; ++rank) EXPECT_THAT(shard(order, 7, rank, false), ElementsAre(rank % 2 == 0 ? 1 : 0));
}

TEST(Shard, leaves_the_tail_out_with_drop_last) {
  const std::vector<int64_t> order = {5, 3, 1, 4, 2};
  EXPECT_THAT(shard(order, 2, 0, true), ElementsAre(5, 1));
  EXPECT_THAT(shard(order, 2, 1, true), ElementsAre(3, 4));
  EXPECT_THAT(shard(order, 6, 5, true), IsEmpty());
}

TEST(Shard, an_empty_dataset_gives_every_rank_nothing) {
  for (const bool drop_last : {false, true}) EXPECT_THAT(shard({}, 4, 3, drop_last), IsEmpty());
}

TEST(Shard, all_ranks_together_cover_every_sample_and_repeat_only_the_padding) {
  std::mt19937 random(1);
  for (int round = 0; round < 500; ++round) {
    const auto n = static_cast<int64_t>(random() % 200 + 1);
    const int world = static_cast<int>(random() % 17 + 1);
    const std::vector<int64_t> order = shuffled(n, random());
    for (const bool drop_last : {false, true}) {
      std::vector<int64_t> seen(order.size(), 0);
      for (int rank = 0; rank < world; ++rank) {
        const std::vector<int64_t> samples = shard(order, world, rank, drop_last);
        ASSERT_EQ(static_cast<int64_t>(samples.size()), shard_size(n, world, drop_last));
        for (const int64_t sample : samples) ++seen.at(static_cast<size_t>(sample));
      }
      const auto [least, most] = std::minmax_element(seen.begin(), seen.end());
      ASSERT_LE(*most - *least, 1) << "n " << n << ", world " << world;
      const int64_t total = std::accumulate(seen.begin(), seen.end(), int64_t{0});
      if (drop_last) {
        ASSERT_LE(*most, 1);
        ASSERT_EQ(total, n / world * world);
      } else {
        ASSERT_GE(*least, 1);
        ASSERT_EQ(total, (n + world - 1) / world * world);
      }
    }
  }
}

TEST(Shard, refuses_a_rank_outside_the_world_and_names_both) {
  const std::vector<int64_t> order = {0, 1, 2};
  const auto refused = [&](int world, int rank, const char* message) {
    EXPECT_THAT([&] { shard(order, world, rank, false); }, ThrowsMessage<std::invalid_argument>(message));
  };
  refused(2, 2, "Invalid rank 2, rank should be in the interval [0, 1]");
  refused(2, -1, "Invalid rank -1, rank should be in the interval [0, 1]");
  EXPECT_THAT([&] { shard(order, 0, 0, false); },
              ThrowsMessage<std::invalid_argument>(testing::StartsWith("Invalid num_replicas 0")));
  EXPECT_THAT([&] { shard(order, -3, 0, false); }, Throws<std::invalid_argument>());
}

}  // namespace
}  // namespace ddp

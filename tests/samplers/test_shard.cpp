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
  EXPECT_THAT(shard(order, {.num_replicas = 2, .rank = 0}), ElementsAre(5, 1, 2));
  EXPECT_THAT(shard(order, {.num_replicas = 2, .rank = 1}), ElementsAre(3, 4, 0));
}

TEST(Shard, repeats_from_the_start_of_the_order_where_the_ranks_do_not_divide) {
  const std::vector<int64_t> order = {5, 3, 1, 4};
  EXPECT_THAT(shard(order, {.num_replicas = 3, .rank = 0}), ElementsAre(5, 4));
  EXPECT_THAT(shard(order, {.num_replicas = 3, .rank = 1}), ElementsAre(3, 5));
  EXPECT_THAT(shard(order, {.num_replicas = 3, .rank = 2}), ElementsAre(1, 3));
}

TEST(Shard, repeats_as_often_as_needed_when_there_are_more_ranks_than_samples) {
  const std::vector<int64_t> order = {1, 0};
  for (int rank = 0; rank < 7; ++rank)
    EXPECT_THAT(shard(order, {.num_replicas = 7, .rank = rank}), ElementsAre(rank % 2 == 0 ? 1 : 0));
}

TEST(Shard, leaves_the_tail_out_with_drop_last) {
  const std::vector<int64_t> order = {5, 3, 1, 4, 2};
  EXPECT_THAT(shard(order, {.num_replicas = 2, .rank = 0, .tail = Tail::kDrop}), ElementsAre(5, 1));
  EXPECT_THAT(shard(order, {.num_replicas = 2, .rank = 1, .tail = Tail::kDrop}), ElementsAre(3, 4));
  EXPECT_THAT(shard(order, {.num_replicas = 6, .rank = 5, .tail = Tail::kDrop}), IsEmpty());
}

TEST(Shard, an_empty_dataset_gives_every_rank_nothing) {
  for (const Tail tail : {Tail::kRepeat, Tail::kDrop, Tail::kUneven})
    EXPECT_THAT(shard({}, {.num_replicas = 4, .rank = 3, .tail = tail}), IsEmpty());
}

TEST(Shard, gives_the_first_ranks_one_more_where_nothing_may_be_repeated) {
  const std::vector<int64_t> order = {5, 3, 1, 4, 2};
  EXPECT_THAT(shard(order, {.num_replicas = 2, .rank = 0, .tail = Tail::kUneven}), ElementsAre(5, 1, 2));
  EXPECT_THAT(shard(order, {.num_replicas = 2, .rank = 1, .tail = Tail::kUneven}), ElementsAre(3, 4));
  EXPECT_THAT(shard(order, {.num_replicas = 6, .rank = 5, .tail = Tail::kUneven}), IsEmpty());
}

TEST(Shard, all_ranks_together_cover_every_sample_and_repeat_only_the_padding) {
  std::mt19937 random(1);
  for (int round = 0; round < 500; ++round) {
    const auto n = static_cast<int64_t>(random() % 200 + 1);
    const int world = static_cast<int>(random() % 17 + 1);
    const std::vector<int64_t> order = shuffled(n, random());
    for (const Tail tail : {Tail::kRepeat, Tail::kDrop, Tail::kUneven}) {
      std::vector<int64_t> seen(order.size(), 0);
      for (int rank = 0; rank < world; ++rank) {
        const Sharding sharding{.num_replicas = world, .rank = rank, .tail = tail};
        const std::vector<int64_t> samples = shard(order, sharding);
        ASSERT_EQ(static_cast<int64_t>(samples.size()), shard_size(n, sharding));
        for (const int64_t sample : samples) ++seen.at(static_cast<size_t>(sample));
      }
      const auto [least, most] = std::minmax_element(seen.begin(), seen.end());
      const int64_t total = std::accumulate(seen.begin(), seen.end(), int64_t{0});
      if (tail == Tail::kUneven) {
        ASSERT_EQ(*least, 1);
        ASSERT_EQ(*most, 1);
      } else if (tail == Tail::kDrop) {
        ASSERT_LE(*most, 1);
        ASSERT_EQ(total, n / world * world);
      } else {
        ASSERT_LE(*most - *least, 1) << "n " << n << ", world " << world;
        ASSERT_GE(*least, 1);
        ASSERT_EQ(total, (n + world - 1) / world * world);
      }
    }
  }
}

/// How often each sample is used when the job is stopped and goes on with another number of ranks, several times.
std::vector<int64_t> uses_over_restarts(const std::vector<int64_t>& order, Tail tail, std::mt19937& random) {
  std::vector<int64_t> uses(order.size(), 0);
  int64_t consumed = 0;
  while (true) {
    const int world = static_cast<int>(random() % 9 + 1);
    const Sharding rank0{.num_replicas = world, .rank = 0, .tail = tail, .consumed = consumed};
    const int64_t most = shard_size(static_cast<int64_t>(order.size()), rank0);
    if (most == 0) return uses;
    const bool is_last = random() % 4 == 0;
    const int64_t steps = is_last ? most : static_cast<int64_t>(random() % static_cast<uint32_t>(most + 1));
    for (int rank = 0; rank < world; ++rank) {
      Sharding sharding = rank0;
      sharding.rank = rank;
      std::vector<int64_t> samples = shard(order, sharding);
      samples.resize(std::min(samples.size(), static_cast<size_t>(steps)));
      for (const int64_t sample : samples) ++uses.at(static_cast<size_t>(sample));
    }
    consumed += steps * world;
    if (is_last) return uses;
  }
}

TEST(Shard, an_epoch_continued_with_other_numbers_of_ranks_uses_every_sample_as_an_uninterrupted_one) {
  std::mt19937 random(2);
  for (int round = 0; round < 2000; ++round) {
    const std::vector<int64_t> order = shuffled(static_cast<int64_t>(random() % 150 + 1), random());
    const auto even = uses_over_restarts(order, Tail::kUneven, random);
    ASSERT_TRUE(std::all_of(even.begin(), even.end(), [](int64_t count) { return count == 1; })) << "round " << round;
    const auto padded = uses_over_restarts(order, Tail::kRepeat, random);
    ASSERT_GE(*std::min_element(padded.begin(), padded.end()), 1);
    ASSERT_LE(std::accumulate(padded.begin(), padded.end(), int64_t{0}), static_cast<int64_t>(order.size()) + 8);
    const auto dropped = uses_over_restarts(order, Tail::kDrop, random);
    ASSERT_LE(*std::max_element(dropped.begin(), dropped.end()), 1);
    ASSERT_GE(std::accumulate(dropped.begin(), dropped.end(), int64_t{0}), static_cast<int64_t>(order.size()) - 8);
  }
}

TEST(Shard, continued_with_the_same_ranks_is_what_would_have_come) {
  const std::vector<int64_t> order = shuffled(23, 5);
  for (const Tail tail : {Tail::kRepeat, Tail::kDrop, Tail::kUneven}) {
    for (int rank = 0; rank < 4; ++rank) {
      const std::vector<int64_t> whole = shard(order, {.num_replicas = 4, .rank = rank, .tail = tail});
      for (size_t done = 0; done < whole.size(); ++done) {
        const auto rest =
            shard(order, {.num_replicas = 4, .rank = rank, .tail = tail, .consumed = 4 * static_cast<int64_t>(done)});
        ASSERT_EQ(rest, std::vector<int64_t>(whole.begin() + static_cast<std::ptrdiff_t>(done), whole.end()));
      }
    }
  }
}

TEST(Shard, refuses_a_negative_number_of_consumed_samples) {
  const std::vector<int64_t> order = {0};
  EXPECT_THAT([&] { shard(order, {.consumed = -1}); }, ThrowsMessage<std::invalid_argument>(testing::HasSubstr("-1")));
  EXPECT_THAT(shard(order, {.consumed = 5}), IsEmpty());
}

TEST(Shard, refuses_a_rank_outside_the_world_and_names_both) {
  const std::vector<int64_t> order = {0, 1, 2};
  const auto refused = [&](int world, int rank, const char* message) {
    EXPECT_THAT([&] { shard(order, {.num_replicas = world, .rank = rank}); },
                ThrowsMessage<std::invalid_argument>(message));
  };
  refused(2, 2, "Invalid rank 2, rank should be in the interval [0, 1]");
  refused(2, -1, "Invalid rank -1, rank should be in the interval [0, 1]");
  EXPECT_THAT([&] { shard(order, {.num_replicas = 0, .rank = 0}); },
              ThrowsMessage<std::invalid_argument>(testing::StartsWith("Invalid num_replicas 0")));
  EXPECT_THAT([&] { shard(order, {.num_replicas = -3}); }, Throws<std::invalid_argument>());
}

}  // namespace
}  // namespace ddp

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <stdexcept>

#include <ddprun/samplers/shard.h>

#include "tests/support/catch.h"
#include "tests/support/matchers.h"

namespace ddp {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::IsEmpty;
using Catch::Matchers::Message;
using Catch::Matchers::MessageMatches;
using Catch::Matchers::StartsWith;
using test::ElementsAre;

std::vector<int64_t> shuffled(int64_t n, uint32_t seed) {
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), int64_t{0});
  std::shuffle(order.begin(), order.end(), std::mt19937(seed));
  return order;
}

TEST_CASE("Shard: takes every world-th sample of the order") {
  const std::vector<int64_t> order = {5, 3, 1, 4, 2, 0};
  CHECK_THAT(shard(order, {.num_replicas = 2, .rank = 0}), ElementsAre(5, 1, 2));
  CHECK_THAT(shard(order, {.num_replicas = 2, .rank = 1}), ElementsAre(3, 4, 0));
}

TEST_CASE("Shard: repeats from the start of the order where the ranks do not divide") {
  const std::vector<int64_t> order = {5, 3, 1, 4};
  CHECK_THAT(shard(order, {.num_replicas = 3, .rank = 0}), ElementsAre(5, 4));
  CHECK_THAT(shard(order, {.num_replicas = 3, .rank = 1}), ElementsAre(3, 5));
  CHECK_THAT(shard(order, {.num_replicas = 3, .rank = 2}), ElementsAre(1, 3));
}

TEST_CASE("Shard: repeats as often as needed when there are more ranks than samples") {
  const std::vector<int64_t> order = {1, 0};
  for (int rank = 0; rank < 7; ++rank)
    CHECK_THAT(shard(order, {.num_replicas = 7, .rank = rank}), ElementsAre(rank % 2 == 0 ? 1 : 0));
}

TEST_CASE("Shard: leaves the tail out with drop last") {
  const std::vector<int64_t> order = {5, 3, 1, 4, 2};
  CHECK_THAT(shard(order, {.num_replicas = 2, .rank = 0, .tail = Tail::kDrop}), ElementsAre(5, 1));
  CHECK_THAT(shard(order, {.num_replicas = 2, .rank = 1, .tail = Tail::kDrop}), ElementsAre(3, 4));
  CHECK_THAT(shard(order, {.num_replicas = 6, .rank = 5, .tail = Tail::kDrop}), IsEmpty());
}

TEST_CASE("Shard: an empty dataset gives every rank nothing") {
  for (const Tail tail : {Tail::kRepeat, Tail::kDrop, Tail::kUneven})
    CHECK_THAT(shard({}, {.num_replicas = 4, .rank = 3, .tail = tail}), IsEmpty());
}

TEST_CASE("Shard: gives the first ranks one more where nothing may be repeated") {
  const std::vector<int64_t> order = {5, 3, 1, 4, 2};
  CHECK_THAT(shard(order, {.num_replicas = 2, .rank = 0, .tail = Tail::kUneven}), ElementsAre(5, 1, 2));
  CHECK_THAT(shard(order, {.num_replicas = 2, .rank = 1, .tail = Tail::kUneven}), ElementsAre(3, 4));
  CHECK_THAT(shard(order, {.num_replicas = 6, .rank = 5, .tail = Tail::kUneven}), IsEmpty());
}

TEST_CASE("Shard: all ranks together cover every sample and repeat only the padding") {
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
        REQUIRE(static_cast<int64_t>(samples.size()) == shard_size(n, sharding));
        for (const int64_t sample : samples) ++seen.at(static_cast<size_t>(sample));
      }
      const auto [least, most] = std::minmax_element(seen.begin(), seen.end());
      const int64_t total = std::accumulate(seen.begin(), seen.end(), int64_t{0});
      if (tail == Tail::kUneven) {
        REQUIRE(*least == 1);
        REQUIRE(*most == 1);
      } else if (tail == Tail::kDrop) {
        REQUIRE(*most <= 1);
        REQUIRE(total == n / world * world);
      } else {
        UNSCOPED_INFO("n " << n << ", world " << world);
        REQUIRE(*most - *least <= 1);
        REQUIRE(*least >= 1);
        REQUIRE(total == (n + world - 1) / world * world);
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

TEST_CASE("Shard: an epoch continued with other numbers of ranks uses every sample as an uninterrupted one") {
  std::mt19937 random(2);
  for (int round = 0; round < 2000; ++round) {
    const std::vector<int64_t> order = shuffled(static_cast<int64_t>(random() % 150 + 1), random());
    const auto even = uses_over_restarts(order, Tail::kUneven, random);
    UNSCOPED_INFO("round " << round);
    REQUIRE(std::all_of(even.begin(), even.end(), [](int64_t count) { return count == 1; }));
    const auto padded = uses_over_restarts(order, Tail::kRepeat, random);
    REQUIRE(*std::min_element(padded.begin(), padded.end()) >= 1);
    REQUIRE(std::accumulate(padded.begin(), padded.end(), int64_t{0}) <= static_cast<int64_t>(order.size()) + 8);
    const auto dropped = uses_over_restarts(order, Tail::kDrop, random);
    REQUIRE(*std::max_element(dropped.begin(), dropped.end()) <= 1);
    REQUIRE(std::accumulate(dropped.begin(), dropped.end(), int64_t{0}) >= static_cast<int64_t>(order.size()) - 8);
  }
}

TEST_CASE("Shard: continued with the same ranks is what would have come") {
  const std::vector<int64_t> order = shuffled(23, 5);
  for (const Tail tail : {Tail::kRepeat, Tail::kDrop, Tail::kUneven}) {
    for (int rank = 0; rank < 4; ++rank) {
      const std::vector<int64_t> whole = shard(order, {.num_replicas = 4, .rank = rank, .tail = tail});
      for (size_t done = 0; done < whole.size(); ++done) {
        const auto rest =
            shard(order, {.num_replicas = 4, .rank = rank, .tail = tail, .consumed = 4 * static_cast<int64_t>(done)});
        REQUIRE(rest == std::vector<int64_t>(whole.begin() + static_cast<std::ptrdiff_t>(done), whole.end()));
      }
    }
  }
}

TEST_CASE("Shard: refuses a negative number of consumed samples") {
  const std::vector<int64_t> order = {0};
  CHECK_THROWS_MATCHES(shard(order, {.consumed = -1}), std::invalid_argument, MessageMatches(ContainsSubstring("-1")));
  CHECK_THAT(shard(order, {.consumed = 5}), IsEmpty());
}

TEST_CASE("Shard: refuses a rank outside the world and names both") {
  const std::vector<int64_t> order = {0, 1, 2};
  const auto refused = [&](int world, int rank, const char* message) {
    CHECK_THROWS_MATCHES(shard(order, {.num_replicas = world, .rank = rank}), std::invalid_argument, Message(message));
  };
  refused(2, 2, "Invalid rank 2, rank should be in the interval [0, 1]");
  refused(2, -1, "Invalid rank -1, rank should be in the interval [0, 1]");
  CHECK_THROWS_MATCHES(shard(order, {.num_replicas = 0, .rank = 0}), std::invalid_argument,
                       MessageMatches(StartsWith("Invalid num_replicas 0")));
  CHECK_THROWS_AS(shard(order, {.num_replicas = -3}), std::invalid_argument);
}

TEST_CASE("Split: rounds down and gives what is left to the first parts") {
  CHECK_THAT(split_lengths(10, std::vector<double>{0.25, 0.25, 0.5}), ElementsAre(3, 2, 5));
  CHECK_THAT(split_lengths(7, std::vector<double>{0.7, 0.2, 0.1}), ElementsAre(5, 2, 0));  // a plain sum is below 1
  CHECK_THAT(split_lengths(0, std::vector<double>{0.5, 0.5}), ElementsAre(0, 0));
  CHECK_THROWS_MATCHES(split_lengths(4, std::vector<double>{0.5, 0.4}), std::invalid_argument,
                       MessageMatches(ContainsSubstring("add up to 0.9")));
  CHECK_THROWS_AS(split_lengths(4, std::vector<double>{0.5, 0.6}), std::invalid_argument);
  CHECK_THROWS_AS(split_lengths(4, std::vector<double>{}), std::invalid_argument);
  CHECK_THROWS_AS(split_lengths(4, std::vector<double>{std::nan("")}), std::invalid_argument);
  CHECK_THROWS_MATCHES(split_lengths(4, std::vector<double>{1.5, -0.5}), std::invalid_argument,
                       MessageMatches(ContainsSubstring("index 0 is 1.5")));
}

TEST_CASE("Split: cuts one permutation into parts") {
  const auto parts = random_split_indices(6, std::vector<int64_t>{4, 0, 2}, 3);
  REQUIRE(parts.size() == 3);
  const auto order = permutation(6, 3);
  CHECK(parts[0] == std::vector<int64_t>(order.begin(), order.begin() + 4));
  CHECK_THAT(parts[1], IsEmpty());
  CHECK(parts[2] == std::vector<int64_t>(order.begin() + 4, order.end()));
  CHECK_THROWS_MATCHES(random_split_indices(6, std::vector<int64_t>{4, 1}, 3), std::invalid_argument,
                       MessageMatches(ContainsSubstring("the dataset's 6 samples, got 4, 1")));
  CHECK_THROWS_AS(random_split_indices(6, std::vector<int64_t>{7, -1}, 3), std::invalid_argument);
}

}  // namespace
}  // namespace ddp

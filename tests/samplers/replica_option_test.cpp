// A sampler's share is taken from a group, taken as given, or refused where it is missing and matters.
#include "samplers/replica_option.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "ranks/job.h"

namespace ddp {
namespace {

using testing::HasSubstr;
using testing::StartsWith;
using testing::ThrowsMessage;

std::pair<int, int> share(std::optional<int> num_replicas, std::optional<int> rank) {
  const Replica replica = require_replica("Sampler", num_replicas, rank);
  return {replica.num_replicas, replica.rank};
}

TEST(ReplicaOption, in_one_process_alone_everything_is_its_own) {
  EXPECT_EQ(share(std::nullopt, std::nullopt), std::pair(1, 0));
  EXPECT_EQ(share(1, std::nullopt), std::pair(1, 0));
  EXPECT_EQ(share(3, 2), std::pair(3, 2));
}

TEST(ReplicaOption, replicas_without_a_rank_are_refused_everywhere) {
  EXPECT_THAT([] { share(2, std::nullopt); },
              ThrowsMessage<std::invalid_argument>(StartsWith(
                  "Sampler: `.num_replicas = 2` without `.rank`: every rank would get rank 0's share. Give it "
                  "the group, Sampler(…, group)")));
}

TEST(ReplicaOption, of_several_ranks_each_must_say_what_it_wants) {
  const ThreadJob job({.rank = 1, .size = 2});
  EXPECT_THAT([] { share(std::nullopt, std::nullopt); },
              ThrowsMessage<std::invalid_argument>(
                  StartsWith("rank 1 of 2: Sampler: it was not told which rank this is, so all 2 ranks would get every "
                             "sample. Give it the group")));
  EXPECT_THAT([] { share(std::nullopt, 0); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("`.rank = 0` without `.num_replicas`")));
  EXPECT_EQ(share(2, 1), std::pair(2, 1));
  EXPECT_EQ(share(1, 0), std::pair(1, 0)) << "everything on every rank, by the book";
  EXPECT_EQ(share(1, std::nullopt), std::pair(1, 0));
}

struct Group {
  int rank() const { return 1; }
  int size() const { return 3; }
};

struct Options {
  std::optional<int> num_replicas{};
  std::optional<int> rank{};
};

TEST(ReplicaOption, comes_from_the_group_and_no_second_word_for_it) {
  const Options options = with_replica("Sampler", Options{}, Group());
  EXPECT_EQ(options.num_replicas, 3);
  EXPECT_EQ(options.rank, 1);
  EXPECT_EQ(with_replica("Sampler", Options{.num_replicas = 3}, Group()).rank, 1);
  EXPECT_THAT(
      [] { with_replica("Sampler", Options{.num_replicas = 1}, Group()); },
      ThrowsMessage<std::invalid_argument>(HasSubstr("`.num_replicas = 1` contradicts the group, which says 3")));
  EXPECT_THAT([] { with_replica("Sampler", Options{.num_replicas = 3, .rank = 1}, Group()); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("`.rank = 1` beside the group")));
}

}  // namespace
}  // namespace ddp

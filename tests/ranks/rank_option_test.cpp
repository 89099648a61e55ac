// A rank is taken from a group, taken as given, or refused where it is missing and matters.
#include "ranks/rank_option.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <stdexcept>
#include <string>

#include "ranks/job.h"

namespace ddp {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;
using testing::ThrowsMessage;

struct Group {
  int rank() const { return 1; }
  int size() const { return 3; }
};
static_assert(RankedGroup<Group>);
static_assert(!RankedGroup<int>);

struct Options {
  std::optional<int> rank{};
  int other = 0;
};

int rank_of(std::optional<int> rank) {
  return require_rank("Thing", rank, "write x", "Thing(path, group)");
}

struct GroupOfOne {
  int rank() const { return 0; }
  int size() const { return 1; }
};

TEST(RankOption, comes_from_the_group) {
  const Options options = with_rank("Thing", Options{.other = 5}, Group());
  EXPECT_EQ(options.rank, 1);
  EXPECT_EQ(options.other, 5);
}

// One that refused a wrong rank only would throw on some ranks, and the others would wait for them.
TEST(RankOption, is_refused_beside_the_group_on_every_rank) {
  for (const int rank : {0, 1}) {
    const auto is_refused = ThrowsMessage<std::invalid_argument>(
        HasSubstr("Thing: `.rank = " + std::to_string(rank) + "` beside the group, which says it on every rank"));
    EXPECT_THAT([&] { with_rank("Thing", Options{.rank = rank}, Group()); }, is_refused);
    EXPECT_THAT([&] { with_rank("Thing", Options{.rank = rank}, GroupOfOne()); }, is_refused);
  }
}

TEST(RankOption, may_be_missing_in_one_process_alone) {
  EXPECT_EQ(rank_of(std::nullopt), 0);
  EXPECT_EQ(rank_of(7), 7);
  const ThreadJob alone({.rank = 0, .size = 1});
  EXPECT_EQ(rank_of(std::nullopt), 0);
}

TEST(RankOption, is_refused_when_missing_under_a_launcher) {
  ::setenv("RANK", "1", 1);
  ::setenv("WORLD_SIZE", "2", 1);
  EXPECT_THAT([] { rank_of(std::nullopt); },
              ThrowsMessage<std::invalid_argument>(AllOf(
                  StartsWith("rank 1 of 2: Thing: it was not told which rank this is, so all 2 ranks would write x"),
                  HasSubstr("Give it the group, Thing(path, group), or `.rank`."))));
  EXPECT_EQ(rank_of(0), 0) << "who says it means it";
  ::unsetenv("RANK");
  ::unsetenv("WORLD_SIZE");
}

TEST(RankOption, is_refused_when_missing_in_a_rank_that_is_a_thread) {
  const ThreadJob job({.rank = 0, .size = 4});
  EXPECT_THAT([] { rank_of(std::nullopt); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("rank 0 of 4: Thing: it was not told")));
  EXPECT_EQ(rank_of(3), 3);
}

}  // namespace
}  // namespace ddp

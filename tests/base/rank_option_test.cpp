// A rank is taken from a group, taken as given, or refused where it is missing and matters.
#include <cstdlib>
#include <stdexcept>
#include <string>

#include <ddprun/detail/base/rank_option.h>

#include "base/job.h"
#include "tests/support/catch.h"

namespace ddp {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

using Catch::Matchers::StartsWith;

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

TEST_CASE("RankOption: comes from the group") {
  const Options options = with_rank("Thing", Options{.other = 5}, Group());
  CHECK(options.rank == 1);
  CHECK(options.other == 5);
}

// One that refused a wrong rank only would throw on some ranks, and the others would wait for them.
TEST_CASE("RankOption: is refused beside the group on every rank") {
  for (const int rank : {0, 1}) {
    const auto is_refused =
        MessageMatches(ContainsSubstring("Thing: `.rank = " + std::to_string(rank) + "` and a group were given"));
    CHECK_THROWS_MATCHES(with_rank("Thing", Options{.rank = rank}, Group()), std::invalid_argument, is_refused);
    CHECK_THROWS_MATCHES(with_rank("Thing", Options{.rank = rank}, GroupOfOne()), std::invalid_argument, is_refused);
  }
}

TEST_CASE("RankOption: may be missing in one process alone") {
  CHECK(rank_of(std::nullopt) == 0);
  CHECK(rank_of(7) == 7);
  const ThreadJob alone({.rank = 0, .size = 1});
  CHECK(rank_of(std::nullopt) == 0);
}

TEST_CASE("RankOption: is refused when missing under a launcher") {
  ::setenv("RANK", "1", 1);
  ::setenv("WORLD_SIZE", "2", 1);
  CHECK_THROWS_MATCHES(
      rank_of(std::nullopt), std::invalid_argument,
      MessageMatches(StartsWith("rank 1 of 2: Thing: no group and no rank were given, so all 2 ranks would write x") &&
                     ContainsSubstring("Give it the group, Thing(path, group), or `.rank`.")));
  INFO("who says it means it");
  CHECK(rank_of(0) == 0);
  ::unsetenv("RANK");
  ::unsetenv("WORLD_SIZE");
}

TEST_CASE("RankOption: is refused when missing in a rank that is a thread") {
  const ThreadJob job({.rank = 0, .size = 4});
  CHECK_THROWS_MATCHES(rank_of(std::nullopt), std::invalid_argument,
                       MessageMatches(ContainsSubstring("rank 0 of 4: Thing: no group and no rank were given")));
  CHECK(rank_of(3) == 3);
}

}  // namespace
}  // namespace ddp

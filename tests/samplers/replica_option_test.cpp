// A sampler's share is taken from a group, taken as given, or refused where it is missing and matters.
#include <stdexcept>

#include <ddprun/detail/samplers/replica_option.h>

#include "base/job.h"
#include "tests/support/catch.h"

namespace ddp {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

using Catch::Matchers::StartsWith;

std::pair<int, int> share(std::optional<int> num_replicas, std::optional<int> rank) {
  const Replica replica = require_replica("Sampler", num_replicas, rank);
  return {replica.num_replicas, replica.rank};
}

TEST_CASE("ReplicaOption: in one process alone everything is its own") {
  CHECK(share(std::nullopt, std::nullopt) == std::pair(1, 0));
  CHECK(share(1, std::nullopt) == std::pair(1, 0));
  CHECK(share(3, 2) == std::pair(3, 2));
}

TEST_CASE("ReplicaOption: replicas without a rank are refused everywhere") {
  CHECK_THROWS_MATCHES(share(2, std::nullopt), std::invalid_argument,
                       MessageMatches(StartsWith(
                           "Sampler: `.num_replicas = 2` without `.rank`: every rank would get rank 0's share. Give it "
                           "the group, Sampler(…, group)")));
}

TEST_CASE("ReplicaOption: of several ranks each must say what it wants") {
  const ThreadJob job({.rank = 1, .size = 2});
  CHECK_THROWS_MATCHES(
      share(std::nullopt, std::nullopt), std::invalid_argument,
      MessageMatches(StartsWith("rank 1 of 2: Sampler: no group and no rank were given, so all 2 ranks would get every "
                                "sample. Give it the group")));
  CHECK_THROWS_MATCHES(share(std::nullopt, 0), std::invalid_argument,
                       MessageMatches(ContainsSubstring("`.rank = 0` without `.num_replicas`")));
  CHECK(share(2, 1) == std::pair(2, 1));
  UNSCOPED_INFO("everything on every rank, by the book");
  CHECK(share(1, 0) == std::pair(1, 0));
  CHECK(share(1, std::nullopt) == std::pair(1, 0));
}

struct OptionGroup {
  int rank() const { return 1; }
  int size() const { return 3; }
};

struct Options {
  std::optional<int> num_replicas{};
  std::optional<int> rank{};
};

TEST_CASE("ReplicaOption: comes from the group and no second word for it") {
  const Options options = with_replica("Sampler", Options{}, OptionGroup());
  CHECK(options.num_replicas == 3);
  CHECK(options.rank == 1);
  CHECK(with_replica("Sampler", Options{.num_replicas = 3}, OptionGroup()).rank == 1);
  CHECK_THROWS_MATCHES(with_replica("Sampler", Options{.num_replicas = 1}, OptionGroup()), std::invalid_argument,
                       MessageMatches(ContainsSubstring("`.num_replicas = 1` contradicts the group, which says 3")));
  CHECK_THROWS_MATCHES(with_replica("Sampler", Options{.num_replicas = 3, .rank = 1}, OptionGroup()),
                       std::invalid_argument, MessageMatches(ContainsSubstring("`.rank = 1` and a group were given")));
}

}  // namespace
}  // namespace ddp

// Ranks compare what they are about to do, in words, before collectives would hang.
#include "comm/group/verify_across_ranks.h"

#include <atomic>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/errors.h"
#include "tests/support/rank_checks.h"
#include "tests/support/ranks.h"

namespace ddp {
namespace {

using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;
using Lines = std::vector<std::string>;
using test::error_of;
using test::run_ranks;

// What each rank is told when rank r of `size` compares lines_of(r).
void expect_told(int size, const std::function<Lines(int rank)>& lines_of, const std::string& told) {
  run_ranks(size, [&](const GroupHandle& group) {
    const std::string error =
        error_of<std::runtime_error>([&] { verify_equal_across_ranks("parameters", lines_of(group.rank()), group); });
    RANK_CHECK(error == "rank " + std::to_string(group.rank()) + " of " + std::to_string(size) + ": " + told);
  });
}

TEST_CASE("VerifyAcrossRanks: equal lines pass, any number of times") {
  const int size = GENERATE(1, 2, 4);
  run_ranks(size, [](const GroupHandle& group) {
    for (int round = 0; round < 5; ++round) {
      verify_equal_across_ranks("nothing", {}, group);
      verify_equal_across_ranks("an empty line", {""}, group);
      verify_equal_across_ranks("any bytes", {std::string("\0\xff\t", 3), "rank", std::string(100'000, 'x')}, group);
    }
  });
}

TEST_CASE("VerifyAcrossRanks: the rank that differs from a majority is named on all ranks") {
  for (int odd = 0; odd < 3; ++odd) {
    expect_told(
        3,
        [odd](int rank) {
          return Lines{"a", rank == odd ? "x" : "b", "c"};
        },
        "parameters differ; the first difference: rank " + std::to_string(odd) + " has x, the others b");
  }
}

TEST_CASE("VerifyAcrossRanks: without a majority the two lowest ranks that differ are named") {
  expect_told(
      2, [](int rank) { return Lines{std::to_string(rank)}; },
      "parameters differ; the first difference: rank 0 has 0, rank 1 has 1");
  expect_told(
      4, [](int rank) { return Lines{std::to_string(rank / 2)}; },
      "parameters differ; the first difference: rank 0 has 0, rank 2 has 1");
  expect_told(
      3, [](int rank) { return Lines{std::to_string(rank)}; },
      "parameters differ; the first difference: rank 0 has 0, rank 1 has 1");
}

TEST_CASE("VerifyAcrossRanks: a rank that has less has nothing more") {
  expect_told(
      3,
      [](int rank) {
        return rank == 2 ? Lines{"a"} : Lines{"a", "b"};
      },
      "parameters differ; the first difference: rank 2 has nothing more, the others b");
  expect_told(
      3,
      [](int rank) {
        return rank == 0 ? Lines{"a", "b"} : Lines{};
      },
      "parameters differ; the first difference: rank 0 has a, the others nothing more");
}

TEST_CASE("VerifyAcrossRanks: lines are shown shortened, and compared whole") {
  const std::string begin(300, 'y');
  expect_told(
      2, [&](int rank) { return Lines{begin + std::to_string(rank)}; },
      "parameters differ; the first difference: rank 0 has " + begin + "..., rank 1 has " + begin + "...");
}

TEST_CASE("VerifyAcrossRanks: the group is of use after a difference") {
  run_ranks(3, [](const GroupHandle& group) {
    for (int round = 0; round < 3; ++round) {
      const std::string error = error_of<std::runtime_error>(
          [&] { verify_equal_across_ranks("seeds", {std::to_string(group.rank() == 1 ? round : -1)}, group); });
      RANK_CHECK_THAT(error, ContainsSubstring("seeds differ; the first difference: rank 1 has " +
                                               std::to_string(round) + ", the others -1"));
      verify_equal_across_ranks("seeds", {"the same"}, group);
    }
  });
}

TEST_CASE("VerifyAcrossRanks: a rank that does not come is named at the timeout") {
  std::atomic<bool> is_over{false};
  run_ranks(2, [&](const GroupHandle& group) {
    if (group.rank() == 0) {
      const std::string error =
          error_of<std::runtime_error>([&] { verify_equal_across_ranks("parameters", {"a"}, group, 200ms); });
      RANK_CHECK_THAT(error, ContainsSubstring("cannot be compared: waited for rank 1, which did not reach the same point"));
      is_over = true;
    } else {
      while (!is_over) std::this_thread::sleep_for(1ms);
    }
  });
}

TEST_CASE("VerifyAcrossRanks: a rank alone has nobody to compare with") {
  const GroupHandle alone = test::unconnected_rank(0, 1);
  CHECK_NOTHROW(verify_equal_across_ranks("parameters", {"a"}, alone));
  CHECK(ranks_running_python(alone).empty());
}

TEST_CASE("VerifyAcrossRanks: ranks of this library are not taken for Python's") {
  run_ranks(3, [](const GroupHandle& group) { RANK_CHECK(ranks_running_python(group).empty()); });
}

}  // namespace
}  // namespace ddp

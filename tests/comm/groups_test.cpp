// Sub-groups, and ranks as threads for users.
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>

#include <atomic>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <ddprun/comm/collectives.h>
#include <ddprun/comm/spawn.h>

#include "base/job.h"
#include "tests/support/catch.h"
#include "tests/support/errors.h"
#include "tests/support/every_wire.h"
#include "tests/support/placement.h"
#include "tests/support/rank_checks.h"
#include "tests/support/ranks.h"

namespace ddp {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;
using test::error_of;
using test::here;
using test::run_ranks;
using test::Wire;

float sum_of_ranks(const GroupHandle& group, int value) {
  at::Tensor tensor = here(at::full({3}, static_cast<float>(value)));
  all_reduce(tensor, group);
  return tensor[0].item<float>();
}

class SubGroups : protected test::EveryWire {};
TEST_CASE_METHOD(SubGroups, "SubGroups: reduce among their members only") {
  run_ranks(4,
            [](const GroupHandle& group) {
              const auto even = new_group(group, {2, 0});
              const auto odd = new_group(group, {1, 3});
              RANK_REQUIRE(even.has_value() == (group.rank() % 2 == 0));
              RANK_REQUIRE(odd.has_value() == (group.rank() % 2 == 1));
              const GroupHandle& mine = even ? *even : *odd;
              RANK_CHECK(mine.size() == 2);
              {
                RANK_INFO("in the order of the job's ranks");
                RANK_CHECK(mine.rank() == group.rank() / 2);
              }
              RANK_CHECK(sum_of_ranks(mine, group.rank()) == (group.rank() % 2 == 0 ? 2 : 4));
              RANK_CHECK(sum_of_ranks(group, group.rank()) == 6);
              barrier(mine);
              if (group.rank() != 1) return;
              RANK_CHECK(who(mine.info()) == "rank 0 of 2 in a sub-group (rank 1 of 4)");
            },
            {.wire = wire_});
}

TEST_CASE_METHOD(SubGroups, "SubGroups: nest and may have one member") {
  run_ranks(3,
            [](const GroupHandle& group) {
              const auto pair = new_group(group, {1, 2});
              const auto alone = new_group(group, {0});
              RANK_CHECK(alone.has_value() == (group.rank() == 0));
              if (alone) {
                RANK_CHECK(sum_of_ranks(*alone, 5) == 5);
                return;
              }
              const auto last = new_group(*pair, {1});
              const auto both = new_group(*pair, {0, 1});
              RANK_CHECK(last.has_value() == (group.rank() == 2));
              RANK_CHECK(sum_of_ranks(*both, group.rank()) == 3);
            },
            {.wire = wire_});
}

TEST_CASE("SubGroup: lists that differ are named with both sides") {
  std::mutex mutex;
  std::string messages;
  run_ranks(2, [&](const GroupHandle& group) {
    std::string message = error_of<std::runtime_error>(
        [&] { new_group(group, group.rank() == 0 ? std::vector<int>{0} : std::vector<int>{1}); });
    const std::lock_guard lock(mutex);
    messages += message;
  });
  CHECK_THAT(messages, ContainsSubstring("rank 0 of 2: the groups of new_group (number 1) differ") &&
                           ContainsSubstring("rank 1 of 2: the groups of new_group (number 1) differ") &&
                           ContainsSubstring("ranks (0)") && ContainsSubstring("ranks (1)"));
}

TEST_CASE("SubGroup: refuses lists that make no sense") {
  run_ranks(2, [](const GroupHandle& group) {
    RANK_CHECK_THAT(error_of<std::invalid_argument>([&] { new_group(group, {}); }),
                    ContainsSubstring("the list of ranks is empty"));
    RANK_CHECK_THAT(error_of<std::invalid_argument>([&] {
                      new_group(group, {0, 0});
                    }),
                    ContainsSubstring("rank 0 is listed twice"));
    RANK_CHECK_THAT(error_of<std::invalid_argument>([&] {
                      new_group(group, {0, 2});
                    }),
                    ContainsSubstring("member 2 is not a rank"));
    RANK_CHECK_THAT(error_of<std::invalid_argument>([&] { new_group(group, {0}, {.backend = "mpi"}); }),
                    ContainsSubstring("LibTorch's builds have no MPI backend"));
    RANK_CHECK_THAT(error_of<std::invalid_argument>([&] {
                      new_group(group, {0, 1}, {.backend = "local"});
                    }),
                    ContainsSubstring("backend 'local' is for one rank, not for ranks (0, 1)"));
    if (!test::is_on_devices()) {
      RANK_CHECK_THAT(error_of<std::invalid_argument>([&] {
                        new_group(group, {0, 1}, {.backend = "nccl"});
                      }),
                      ContainsSubstring("backend 'nccl' needs a parent group that has a GPU per rank, but the parent "
                                        "group's backend is 'cpu:gloo'"));
    }
    for (const int milliseconds : {0, -5000}) {
      RANK_CHECK_THAT(
          error_of<std::invalid_argument>([&] {
            new_group(group, {0, 1}, {.timeout = std::chrono::milliseconds(milliseconds)});
          }),
          ContainsSubstring("new_group: expected a timeout above 0, got " + std::to_string(milliseconds) + " ms"));
    }
    RANK_INFO("the group stays usable");
    RANK_CHECK(sum_of_ranks(group, 1) == 2);
  });
}

TEST_CASE("SubGroup: a member that does not come is named at the timeout") {
  std::atomic<bool> failed{false};
  run_ranks(2, [&](const GroupHandle& group) {
    if (group.rank() == 1) {
      while (!failed) std::this_thread::yield();
      return;
    }
    RANK_CHECK_THAT(error_of<std::runtime_error>([&] {
                      new_group(group, {0, 1}, {.timeout = std::chrono::milliseconds(300)});
                    }),
                    ContainsSubstring("cannot be compared: waited for rank 1, which did not reach the same point"));
    failed = true;
  });
}

TEST_CASE("Spawn: runs each rank in a thread of its own") {
  for (const int size : {1, 2, 4}) {
    std::mutex mutex;
    std::set<std::thread::id> threads;
    std::set<int> ranks;
    spawn(size, [&](const GroupHandle& group) {
      RANK_CHECK(group.size() == size);
      RANK_CHECK(group.local_rank() == group.rank());
      {
        RANK_INFO("what samplers and writers without a group refuse by");
        RANK_CHECK(job_of_this_thread().rank == group.rank());
      }
      RANK_CHECK(job_of_this_thread().size == size);
      RANK_CHECK(sum_of_ranks(group, 1) == static_cast<float>(size));
      const std::lock_guard lock(mutex);
      threads.insert(std::this_thread::get_id());
      ranks.insert(group.rank());
    });
    test::report_rank_checks();
    CHECK(threads.size() == static_cast<size_t>(size));
    CHECK(ranks.size() == static_cast<size_t>(size));
    CHECK_FALSE(threads.contains(std::this_thread::get_id()));
  }
}

TEST_CASE("Spawn: names the rank that failed first and ends the others") {
  for (const int failing : {0, 1, 2}) {
    try {
      spawn(3,
            [&](const GroupHandle& group) {
              barrier(group);
              if (group.rank() == failing) throw std::out_of_range("no such sample");
              sum_of_ranks(group, 1);  // waits for the one that fails
              // A device's stream goes on after an abort, with whatever is there.
              if (!test::is_on_devices()) RANK_FAIL_CHECK("rank " << group.rank() << " got a sum");
            },
            {.timeout = std::chrono::seconds(60)});
      FAIL_CHECK("no error");
    } catch (const SpawnError& error) {
      CHECK(error.rank() == failing);
      CHECK(std::string(error.what()) == "rank " + std::to_string(failing) + " of 3: no such sample");
      CHECK_THROWS_AS(std::rethrow_if_nested(error), std::out_of_range);
    }
    test::report_rank_checks();
  }
}

TEST_CASE("Spawn: ends ranks that start collectives after the failure") {
  std::atomic<int> ended{0};
  CHECK_THROWS_AS(spawn(3,
                        [&](const GroupHandle& group) {
                          if (group.rank() == 2) throw std::runtime_error("failed");
                          try {
                            for (;;) sum_of_ranks(group, 1);
                          } catch (const std::runtime_error&) {
                            ++ended;
                            throw;
                          }
                        },
                        {.timeout = std::chrono::seconds(60)}),
                  SpawnError);
  CHECK(ended == 2);
}

TEST_CASE("Spawn: refuses settings that contradict each other") {
  const auto nothing = [](const GroupHandle&) { FAIL(); };
  CHECK_THROWS_MATCHES(spawn(0, nothing), std::invalid_argument,
                       MessageMatches(ContainsSubstring("at least 1 rank, got 0")));
  CHECK_THROWS_MATCHES(spawn(2, nothing, {.devices = {c10::Device(c10::kCPU)}}), std::invalid_argument,
                       MessageMatches(ContainsSubstring("one device per rank, 2, got 1")));
  CHECK_THROWS_MATCHES(spawn(2, nothing, {.backend = "local"}), std::invalid_argument,
                       MessageMatches(ContainsSubstring("for one rank")));
  CHECK_THROWS_MATCHES(spawn(2, nothing, {.backend = "mpi"}), std::invalid_argument,
                       MessageMatches(ContainsSubstring("MPI")));
}

TEST_CASE("Spawn: may be called again and again") {
  for (int round = 0; round < 20; ++round) {
    spawn(2, [&](const GroupHandle& group) {
      RANK_CHECK(sum_of_ranks(group, round) == 2.0F * static_cast<float>(round));
    });
    test::report_rank_checks();
  }
}

}  // namespace
}  // namespace ddp

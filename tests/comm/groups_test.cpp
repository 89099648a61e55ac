// Sub-groups, and ranks as threads for users.
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>

#include <atomic>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>

#include "comm/collectives.h"
#include "comm/spawn.h"
#include "ranks/job.h"
#include "tests/support/errors.h"
#include "tests/support/ranks.h"

namespace ddp {
namespace {

using test::error_of;
using test::run_ranks;
using test::Wire;
using testing::AllOf;
using testing::HasSubstr;

float sum_of_ranks(const GroupHandle& group, int value) {
  at::Tensor tensor = at::full({3}, static_cast<float>(value));
  all_reduce(tensor, group);
  return tensor[0].item<float>();
}

class SubGroups : public testing::TestWithParam<Wire> {};
INSTANTIATE_TEST_SUITE_P(Wires, SubGroups, testing::Values(Wire::kGloo, Wire::kLate),
                         [](const auto& parameters) { return parameters.param == Wire::kGloo ? "gloo" : "late"; });

TEST_P(SubGroups, ReduceAmongTheirMembersOnly) {
  run_ranks(4,
            [](const GroupHandle& group) {
              const auto even = new_group(group, {2, 0});
              const auto odd = new_group(group, {1, 3});
              ASSERT_EQ(even.has_value(), group.rank() % 2 == 0);
              ASSERT_EQ(odd.has_value(), group.rank() % 2 == 1);
              const GroupHandle& mine = even ? *even : *odd;
              EXPECT_EQ(mine.size(), 2);
              EXPECT_EQ(mine.rank(), group.rank() / 2) << "in the order of the job's ranks";
              EXPECT_EQ(sum_of_ranks(mine, group.rank()), group.rank() % 2 == 0 ? 2 : 4);
              EXPECT_EQ(sum_of_ranks(group, group.rank()), 6);
              barrier(mine);
              if (group.rank() != 1) return;
              EXPECT_EQ(who(mine.info()), "rank 0 of 2 in a sub-group (rank 1 of 4)");
            },
            {.wire = GetParam()});
}

TEST_P(SubGroups, NestAndMayHaveOneMember) {
  run_ranks(3,
            [](const GroupHandle& group) {
              const auto pair = new_group(group, {1, 2});
              const auto alone = new_group(group, {0});
              EXPECT_EQ(alone.has_value(), group.rank() == 0);
              if (alone) {
                EXPECT_EQ(sum_of_ranks(*alone, 5), 5);
                return;
              }
              const auto last = new_group(*pair, {1});
              const auto both = new_group(*pair, {0, 1});
              EXPECT_EQ(last.has_value(), group.rank() == 2);
              EXPECT_EQ(sum_of_ranks(*both, group.rank()), 3);
            },
            {.wire = GetParam()});
}

TEST(SubGroup, ListsThatDifferAreNamedWithBothSides) {
  std::mutex mutex;
  std::string messages;
  run_ranks(2, [&](const GroupHandle& group) {
    std::string message = error_of<std::runtime_error>(
        [&] { new_group(group, group.rank() == 0 ? std::vector<int>{0} : std::vector<int>{1}); });
    const std::lock_guard lock(mutex);
    messages += message;
  });
  EXPECT_THAT(messages, AllOf(HasSubstr("rank 0 of 2: the groups of new_group (number 1) differ"),
                              HasSubstr("rank 1 of 2: the groups of new_group (number 1) differ"),
                              HasSubstr("ranks (0)"), HasSubstr("ranks (1)")));
}

TEST(SubGroup, RefusesListsThatMakeNoSense) {
  run_ranks(2, [](const GroupHandle& group) {
    EXPECT_THAT(error_of<std::invalid_argument>([&] { new_group(group, {}); }),
                HasSubstr("the list of ranks is empty"));
    EXPECT_THAT(error_of<std::invalid_argument>([&] {
                  new_group(group, {0, 0});
                }),
                HasSubstr("rank 0 is listed twice"));
    EXPECT_THAT(error_of<std::invalid_argument>([&] {
                  new_group(group, {0, 2});
                }),
                HasSubstr("member 2 is not a rank"));
    EXPECT_THAT(error_of<std::invalid_argument>([&] { new_group(group, {0}, {.backend = "mpi"}); }),
                HasSubstr("LibTorch's builds have no MPI backend"));
    for (const int milliseconds : {0, -5000}) {
      EXPECT_THAT(error_of<std::invalid_argument>([&] {
                    new_group(group, {0, 1}, {.timeout = std::chrono::milliseconds(milliseconds)});
                  }),
                  HasSubstr("new_group: expected a timeout above 0, got " + std::to_string(milliseconds) + " ms"));
    }
    EXPECT_EQ(sum_of_ranks(group, 1), 2) << "the group stays usable";
  });
}

TEST(SubGroup, AMemberThatDoesNotComeIsNamedAtTheTimeout) {
  std::atomic<bool> failed{false};
  run_ranks(2, [&](const GroupHandle& group) {
    if (group.rank() == 1) {
      while (!failed) std::this_thread::yield();
      return;
    }
    EXPECT_THAT(error_of<std::runtime_error>([&] {
                  new_group(group, {0, 1}, {.timeout = std::chrono::milliseconds(300)});
                }),
                HasSubstr("rank 0 of 2: waited for rank 1, which did not come to the same point"));
    failed = true;
  });
}

TEST(Spawn, RunsEachRankInAThreadOfItsOwn) {
  for (const int size : {1, 2, 4}) {
    std::mutex mutex;
    std::set<std::thread::id> threads;
    std::set<int> ranks;
    spawn(size, [&](const GroupHandle& group) {
      EXPECT_EQ(group.size(), size);
      EXPECT_EQ(group.local_rank(), group.rank());
      EXPECT_EQ(job_of_this_thread().rank, group.rank()) << "what samplers and writers without a group refuse by";
      EXPECT_EQ(job_of_this_thread().size, size);
      EXPECT_EQ(sum_of_ranks(group, 1), static_cast<float>(size));
      const std::lock_guard lock(mutex);
      threads.insert(std::this_thread::get_id());
      ranks.insert(group.rank());
    });
    EXPECT_EQ(threads.size(), static_cast<size_t>(size));
    EXPECT_EQ(ranks.size(), static_cast<size_t>(size));
    EXPECT_FALSE(threads.contains(std::this_thread::get_id()));
  }
}

TEST(Spawn, NamesTheRankThatFailedFirstAndEndsTheOthers) {
  for (const int failing : {0, 1, 2}) {
    try {
      spawn(3,
            [&](const GroupHandle& group) {
              barrier(group);
              if (group.rank() == failing) throw std::out_of_range("no such sample");
              sum_of_ranks(group, 1);  // waits for the one that fails
              ADD_FAILURE() << "rank " << group.rank() << " got a sum";
            },
            {.timeout = std::chrono::seconds(60)});
      ADD_FAILURE() << "no error";
    } catch (const SpawnError& error) {
      EXPECT_EQ(error.rank(), failing);
      EXPECT_EQ(std::string(error.what()), "rank " + std::to_string(failing) + " of 3: no such sample");
      EXPECT_THROW(std::rethrow_if_nested(error), std::out_of_range);
    }
  }
}

TEST(Spawn, EndsRanksThatStartCollectivesAfterTheFailure) {
  std::atomic<int> ended{0};
  EXPECT_THROW(spawn(3,
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
  EXPECT_EQ(ended, 2);
}

TEST(Spawn, RefusesSettingsThatContradictEachOther) {
  const auto nothing = [](const GroupHandle&) { FAIL(); };
  EXPECT_THAT(error_of<std::invalid_argument>([&] { spawn(0, nothing); }), HasSubstr("at least 1 rank, got 0"));
  EXPECT_THAT(error_of<std::invalid_argument>([&] { spawn(2, nothing, {.devices = {c10::Device(c10::kCPU)}}); }),
              HasSubstr("one device per rank, 2, got 1"));
  EXPECT_THAT(error_of<std::invalid_argument>([&] { spawn(2, nothing, {.backend = "local"}); }),
              HasSubstr("for one rank"));
  EXPECT_THAT(error_of<std::invalid_argument>([&] { spawn(2, nothing, {.backend = "mpi"}); }), HasSubstr("MPI"));
}

TEST(Spawn, MayBeCalledAgainAndAgain) {
  for (int round = 0; round < 20; ++round) {
    spawn(2,
          [&](const GroupHandle& group) { EXPECT_EQ(sum_of_ranks(group, round), 2.0F * static_cast<float>(round)); });
  }
}

}  // namespace
}  // namespace ddp

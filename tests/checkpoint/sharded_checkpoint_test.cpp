// Checkpoints that all ranks write: saved by some number of ranks and loaded by another, whatever is sharded.
#include <map>
#include <string>
#include <vector>

#include <ddprun/checkpoint/checkpoint_manager.h>

#include "tests/checkpoint/sharded_runs.h"
#include "tests/checkpoint/steps_in.h"
#include "tests/support/catch.h"
#include "tests/support/files.h"
#include "tests/support/rank_checks.h"
#include "tests/support/ranks.h"
#include "tests/support/temporary_folder.h"

namespace ddp {
namespace {

class SavedBy {
 protected:
  const test::Kind saved_ =
      GENERATE(test::Kind::kFullyShard, test::Kind::kHybrid, test::Kind::kZero, test::Kind::kReplicated);
  const int ranks_ = GENERATE(1, 2, 3, 4, 8);
  FIXTURE_INFO("saved by: " << saved_ << ", ranks: " << ranks_);
};

// Of simulated devices there are four.
bool has_room_for(int ranks) {
  return ranks <= 4 || !test::is_on_devices();
}

TEST_CASE_METHOD(SavedBy, "SavedBy: any number of ranks, sharded in any way, loads the same bytes") {
  if (!has_room_for(ranks_)) return;
  const test::TemporaryFolder folder;
  std::map<std::string, std::string> expected;
  test::run_ranks(ranks_,
                  [&](const GroupHandle& group) {
                    test::ShardedRun run(saved_, group);
                    for (int64_t step = 0; step < 2; ++step) run.train(step);
                    CheckpointManager manager(folder / "run", group,
                                              test::quiet(true, /*async=*/group.size() % 2 == 0));
                    manager.check(run.state());
                    manager.save(2, run.state());
                    manager.wait();
                    const auto whole = run.whole();
                    if (group.rank() == 0) expected = whole;
                  },
                  {.wire = test::Wire::kShm});
  REQUIRE(expected.contains("state.first.weight.exp_avg"));
  for (const auto kind : {test::Kind::kFullyShard, test::Kind::kZero, test::Kind::kReplicated}) {
    for (const int ranks : kind == test::Kind::kFullyShard ? std::vector{1, 2, 3, 4, 8} : std::vector{1, 3}) {
      if (!has_room_for(ranks)) continue;
      INFO("loaded by " << kind << " on " << ranks << " ranks");
      test::run_ranks(ranks,
                      [&](const GroupHandle& group) {
                        test::ShardedRun run(kind, group);
                        CheckpointManager manager(folder / "run", group, test::quiet(std::nullopt));
                        const auto start = manager.load_latest(run.state());
                        RANK_REQUIRE(start.has_value());
                        RANK_CHECK(start->step == 2);
                        const auto whole = run.whole();
                        for (const auto& [name, bytes] : expected) {
                          const test::ThreadNote note(name);
                          RANK_REQUIRE(whole.contains(name));
                          RANK_CHECK((whole.at(name) == bytes));
                        }
                        RANK_CHECK(whole.size() == expected.size());
                      },
                      {.wire = test::Wire::kShm});
    }
  }
}

class Resumed {
 protected:
  const test::Kind kind_ = GENERATE(test::Kind::kFullyShard, test::Kind::kHybrid, test::Kind::kZero);
  const int ranks_ = GENERATE(2, 4);
  const bool async_ = GENERATE(false, true);
  FIXTURE_INFO("kind: " << kind_ << ", ranks: " << ranks_ << ", async: " << async_);
};

TEST_CASE_METHOD(Resumed, "Resumed: the training has the bits of one that was not interrupted") {
  const test::TemporaryFolder folder;
  std::map<std::string, std::string> expected;
  test::run_ranks(ranks_, [&](const GroupHandle& group) {
    test::ShardedRun run(kind_, group);
    CheckpointManager manager(folder / "run", group, test::quiet(std::nullopt, async_));
    for (int64_t step = 0; step < 6; ++step) {
      if (step == 3) manager.save(step, run.state());  // the following steps change what is being copied
      run.train(step);
    }
    manager.wait();
    const auto whole = run.whole();
    if (group.rank() == 0) expected = whole;
  });
  test::run_ranks(ranks_, [&](const GroupHandle& group) {
    test::ShardedRun run(kind_, group);
    run.train(7);  // whatever was there before
    CheckpointManager manager(folder / "run", group, test::quiet(std::nullopt));
    const auto start = manager.load_latest(run.state());
    for (int64_t step = start.value().step; step < 6; ++step) run.train(step);
    const auto whole = run.whole();
    if (group.rank() == 0) RANK_CHECK(whole == expected);
  });
}

TEST_CASE("ShardedSave: what no rank has whole is sharded by itself, and all else is not") {
  const test::TemporaryFolder folder;
  test::run_ranks(2, [&](const GroupHandle& group) {
    CheckpointManager manager(folder / "run", group, test::quiet(std::nullopt));
    const auto is_sharded = [&](int64_t step, test::ShardedRun& run) {
      manager.save(step, run.state());
      return !std::filesystem::exists(manager.list().front().folder / "model.safetensors");
    };
    test::ShardedRun fully_sharded(test::Kind::kFullyShard, group);
    RANK_CHECK(is_sharded(1, fully_sharded));
    test::ShardedRun replicated(test::Kind::kReplicated, group);
    RANK_CHECK_FALSE(is_sharded(2, replicated));
    test::ShardedRun zero(test::Kind::kZero, group);
    zero.train(0);
    RANK_CHECK(is_sharded(3, zero));
    zero.consolidate(0);
    RANK_CHECK_FALSE(is_sharded(4, zero));
    zero.train(1);
    RANK_CHECK(is_sharded(5, zero));
  });
}

// As rank 0 saves it, each tensor in one file.
TEST_CASE("A whole checkpoint: sharded models and optimizers load their rows of it") {
  const test::TemporaryFolder folder;
  std::map<std::string, std::string> expected;
  test::run_ranks(2, [&](const GroupHandle& group) {
    test::ShardedRun run(test::Kind::kReplicated, group);
    for (int64_t step = 0; step < 2; ++step) run.train(step);
    CheckpointManager manager(folder / "run", group, test::quiet(false));
    manager.save(2, run.state());
    const auto whole = run.whole();
    if (group.rank() == 0) expected = whole;
  });
  for (const auto kind : {test::Kind::kFullyShard, test::Kind::kHybrid, test::Kind::kZero}) {
    for (const auto reader : {CheckpointReader::kRankZero, CheckpointReader::kEveryRank}) {
      INFO(kind);
      test::run_ranks(4, [&](const GroupHandle& group) {
        test::ShardedRun run(kind, group);
        auto options = test::quiet(std::nullopt);
        options.reader = reader;
        CheckpointManager manager(folder / "run", group, options);
        RANK_CHECK(manager.load_latest(run.state()).has_value());
        RANK_CHECK(run.whole() == expected);
      });
    }
  }
}

}  // namespace
}  // namespace ddp

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

TEST_CASE_METHOD(SavedBy, "SavedBy: any number of ranks, sharded in any way, loads the same bytes") {
  const test::TemporaryFolder folder;
  std::map<std::string, std::string> expected;
  test::run_ranks(ranks_, [&](const GroupHandle& group) {
    test::ShardedRun run(saved_, group);
    for (int64_t step = 0; step < 2; ++step) run.train(step);
    CheckpointManager manager(folder / "run", group, test::quiet(true, /*async=*/group.size() % 2 == 0));
    manager.check(run.state());
    manager.save(2, run.state());
    manager.wait();
    const auto whole = run.whole();
    if (group.rank() == 0) expected = whole;
  });
  REQUIRE(expected.contains("state.first.weight.exp_avg"));
  for (const auto kind : {test::Kind::kFullyShard, test::Kind::kZero, test::Kind::kReplicated}) {
    for (const int ranks : kind == test::Kind::kFullyShard ? std::vector{1, 2, 3, 4, 8} : std::vector{1, 3}) {
      INFO("loaded by " << kind << " on " << ranks << " ranks");
      test::run_ranks(ranks, [&](const GroupHandle& group) {
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
      });
    }
  }
}

}  // namespace
}  // namespace ddp

// Checkpoints that all ranks write: saved by some number of ranks and loaded by another, whatever is sharded.
#include <torch/optim/adamw.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <ddprun/checkpoint/checkpoint_manager.h>
#include <ddprun/ddp/distributed_data_parallel.h>
#include <ddprun/fsdp/fully_shard.h>
#include <ddprun/optim/optimizers.h>
#include <ddprun/optim/zero_redundancy_optimizer.h>

#include "tests/checkpoint/sharded_runs.h"
#include "tests/checkpoint/steps_in.h"
#include "tests/support/catch.h"
#include "tests/support/files.h"
#include "tests/support/rank_checks.h"
#include "tests/support/ranks.h"
#include "tests/support/temporary_folder.h"

namespace ddp {
namespace {

enum class Kind { kFullyShard, kHybrid, kZero, kReplicated };

std::ostream& operator<<(std::ostream& stream, Kind kind) {
  constexpr const char* kNames[] = {"fully_shard", "hybrid", "zero", "replicated"};
  return stream << kNames[static_cast<int>(kind)];
}

const optim::AdamWOptions& adamw() {
  static const optim::AdamWOptions options = optim::AdamWOptions(0.01).weight_decay(0.1);
  return options;
}

// One kind of run on one rank.
class Run {
 public:
  Run(Kind kind, const GroupHandle& group) : group_(group) {
    if (kind == Kind::kFullyShard || kind == Kind::kHybrid) {
      const FullyShardOptions options{.units = {each<torch::nn::Linear>()}};
      if (kind == Kind::kHybrid && group.size() % 2 == 0) {
        mesh_.emplace(init_device_mesh(group, {2, group.size() / 2}, {"replicate", "shard"}));
        sharded_ = fully_shard(net_, *mesh_, options);
      } else {
        sharded_ = fully_shard(net_, group, options);
      }
      optimizer_ = std::make_unique<optim::AdamW>(sharded_->parameters(), adamw());
      return;
    }
    ddp_.emplace(net_, group);
    if (kind == Kind::kZero) {
      optimizer_ = std::make_unique<ZeroRedundancyOptimizer<optim::AdamW>>(trained(), adamw(), group);
    } else {
      optimizer_ = std::make_unique<optim::AdamW>(trained(), adamw());
    }
  }

  void train(int64_t step) {
    if (sharded_) {
      test::train_step(sharded_, *optimizer_, group_.rank(), step);
    } else {
      test::train_step(*ddp_, *optimizer_, group_.rank(), step);
    }
  }

  const torch::nn::Module& model() const { return sharded_ ? static_cast<const torch::nn::Module&>(*sharded_) : *net_; }
  std::map<std::string, std::string> whole() const { return test::whole_state(model(), *optimizer_, group_); }

  TrainingState state() {
    if (sharded_) return {.model = sharded_, .optimizer = *optimizer_};
    return {.model = net_, .optimizer = *optimizer_};
  }

 private:
  std::vector<at::Tensor> trained() { return net_->parameters(); }

  GroupHandle group_;
  test::ShardedNet net_;
  std::optional<DeviceMesh> mesh_;
  FullySharded<test::ShardedNet> sharded_{nullptr};
  std::optional<DistributedDataParallel<test::ShardedNet>> ddp_;
  std::unique_ptr<optim::FusedOptimizer> optimizer_;
};

CheckpointOptions quiet(std::optional<bool> sharded, bool async = false) {
  return {.sharded = sharded, .async = async, .staging_bytes = 1, .notify = [](const std::string&) {}};
}

class SavedBy {
 protected:
  const Kind saved_ = GENERATE(Kind::kFullyShard, Kind::kHybrid, Kind::kZero, Kind::kReplicated);
  const int ranks_ = GENERATE(1, 2, 3, 4, 8);
  FIXTURE_INFO("saved by: " << saved_ << ", ranks: " << ranks_);
};

TEST_CASE_METHOD(SavedBy, "SavedBy: any number of ranks, sharded in any way, loads the same bytes") {
  const test::TemporaryFolder folder;
  std::map<std::string, std::string> expected;
  test::run_ranks(ranks_, [&](const GroupHandle& group) {
    Run run(saved_, group);
    for (int64_t step = 0; step < 2; ++step) run.train(step);
    CheckpointManager manager(folder / "run", group, quiet(true, /*async=*/group.size() % 2 == 0));
    manager.check(run.state());
    manager.save(2, run.state());
    manager.wait();
    const auto whole = run.whole();
    if (group.rank() == 0) expected = whole;
  });
  REQUIRE(expected.contains("state.first.weight.exp_avg"));
  for (const auto kind : {Kind::kFullyShard, Kind::kZero, Kind::kReplicated}) {
    for (const int ranks : kind == Kind::kFullyShard ? std::vector{1, 2, 3, 4, 8} : std::vector{1, 3}) {
      INFO("loaded by " << kind << " on " << ranks << " ranks");
      test::run_ranks(ranks, [&](const GroupHandle& group) {
        Run run(kind, group);
        CheckpointManager manager(folder / "run", group, quiet(std::nullopt));
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

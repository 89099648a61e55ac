// Checkpoints that all ranks write: saved by some number of ranks and loaded by another, whatever is sharded.
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <ddprun/checkpoint/checkpoint_manager.h>
#include <ddprun/comm/process_group.h>
#include <ddprun/optim/optimizers.h>

#include "tests/checkpoint/sharded_runs.h"
#include "tests/checkpoint/steps_in.h"
#include "tests/support/catch.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/fill_parameters.h"
#include "tests/support/rank_checks.h"
#include "tests/support/ranks.h"
#include "tests/support/temporary_folder.h"

namespace ddp {
namespace {

using Catch::Matchers::ContainsSubstring;

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
  const bool with_sgd_ = GENERATE(false, true);
  FIXTURE_INFO("kind: " << kind_ << ", ranks: " << ranks_ << ", async: " << async_ << ", SGD: " << with_sgd_);
};

TEST_CASE_METHOD(Resumed, "Resumed: the training has the bits of one that was not interrupted") {
  const test::TemporaryFolder folder;
  std::map<std::string, std::string> expected;
  std::string objects;
  test::run_ranks(ranks_, [&](const GroupHandle& group) {
    test::ShardedRun run(kind_, group, with_sgd_);
    CheckpointManager manager(folder / "run", group, test::quiet(std::nullopt, async_));
    for (int64_t step = 0; step < 6; ++step) {
      if (step == 3) manager.save(step, run.state());  // the following steps change what is being copied
      run.train(step);
    }
    manager.wait();
    const auto whole = run.whole();
    if (group.rank() == 0) expected = whole;
    if (group.rank() == 0) objects = run.objects();
  });
  test::run_ranks(ranks_, [&](const GroupHandle& group) {
    test::ShardedRun run(kind_, group, with_sgd_);
    run.train(7);  // whatever was there before
    CheckpointManager manager(folder / "run", group, test::quiet(std::nullopt));
    const auto start = manager.load_latest(run.state());
    for (int64_t step = start.value().step; step < 6; ++step) run.train(step);
    const auto whole = run.whole();
    if (group.rank() == 0) RANK_CHECK(whole == expected);
    if (group.rank() == 0) RANK_CHECK(run.objects() == objects);
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

TEST_CASE("ShardedSave: ZeRO on one rank is whole, and on several not one rank's") {
  const test::TemporaryFolder folder;
  test::run_ranks(1, [&](const GroupHandle& group) {
    test::ShardedRun run(test::Kind::kZero, group);
    run.train(0);
    CheckpointManager manager(folder / "one", group, test::quiet(std::nullopt));
    RANK_CHECK(test::error_of([&] { manager.save(1, run.state()); }) == "no error");
    test::ShardedRun other(test::Kind::kZero, group);
    RANK_CHECK(manager.load_latest(other.state()).has_value());
    RANK_CHECK(other.whole() == run.whole());
  });
  test::run_ranks(2, [&](const GroupHandle& group) {
    test::ShardedRun run(test::Kind::kZero, group);
    run.train(0);
    CheckpointManager manager(folder / "two", group, test::quiet(false));
    RANK_CHECK_THAT(test::error_of([&] { manager.save(1, run.state()); }),
                    ContainsSubstring("CheckpointOptions::sharded") && ContainsSubstring("consolidate_state(0)"));
  });
}

// In a bucket a parameter without elements would begin where its neighbour does.
TEST_CASE("ShardedSave: ZeRO's buckets with parameters that are empty") {
  struct EmptyPart : torch::nn::Module {
    EmptyPart() {
      register_parameter("a", at::arange(6, at::kFloat));
      register_parameter("b", at::arange(0, at::kFloat));
      register_parameter("b2", at::arange(0, at::kFloat));
      register_parameter("c", at::arange(4, at::kFloat));
    }
  };
  const test::TemporaryFolder folder;
  for (const int ranks : {1, 2, 3}) {
    INFO(ranks << " ranks");
    test::run_ranks(ranks, [&](const GroupHandle& group) {
      EmptyPart net;
      ZeroRedundancyOptimizer<optim::AdamW> optimizer(net.parameters(), test::adamw(), group,
                                                      {.parameters_as_bucket_view = true});
      for (auto& parameter : net.parameters()) parameter.mutable_grad() = at::ones_like(parameter);
      optimizer.step();
      CheckpointManager manager(folder / std::to_string(ranks), group, test::quiet(std::nullopt));
      const auto error = test::error_of([&] {
        manager.save(1, {.model = net, .optimizer = optimizer});
        manager.load(1, {.model = net, .optimizer = optimizer});
      });
      RANK_CHECK(error == "no error");
    });
  }
}

// Its weight is registered first as "head", and comes first in the alphabet as "embedding.weight".
TEST_CASE("ShardedSave: the optimizer's state of a tied weight has the name that was registered first") {
  const test::TemporaryFolder folder;
  const bool sharded = GENERATE(false, true);
  test::run_ranks(2, [&](const GroupHandle& group) {
    test::ShardedRun run(test::Kind::kReplicated, group);
    run.train(0);
    CheckpointManager manager(folder / "run", group, test::quiet(sharded));
    manager.save(1, run.state());
    if (group.rank() != 0) return;
    std::string names;
    for (const auto& file : std::filesystem::directory_iterator(folder / "run/step-00000001")) {
      if (file.path().filename().string().starts_with("optim")) names += test::read_file(file.path());
    }
    RANK_CHECK((names.find("\"state.head.exp_avg\"") != std::string::npos));
    RANK_CHECK((names.find("\"state.embedding.weight.exp_avg\"") == std::string::npos));
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

// Bytes of tensors that the current thread has allocated and not freed.
class LiveBytes : public c10::MemoryReportingInfoBase {
 public:
  void begin() { begin_ = peak_ = live_; }
  int64_t peak() const { return peak_ - begin_; }  // beyond what was there at begin()

  void reportMemoryUsage(void*, int64_t bytes, size_t, size_t, c10::Device) override {
    live_ += bytes;
    peak_ = std::max(peak_, live_);
  }
  bool memoryProfilingEnabled() const override { return true; }

 private:
  int64_t live_ = 0;
  int64_t begin_ = 0;
  int64_t peak_ = 0;
};

template <typename Optimizer>
void load_with(const std::filesystem::path& folder) {
  test::run_ranks(1, [&](const GroupHandle& group) {
    const auto live = std::make_shared<LiveBytes>();
    const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, live);
    torch::nn::Sequential net;
    for (int i = 0; i < 16; ++i) net->push_back(torch::nn::Linear(128, 128));
    test::fill_parameters(*net);
    int64_t bytes = 0;
    for (auto& parameter : net->parameters()) bytes += static_cast<int64_t>(parameter.nbytes());
    Optimizer optimizer(net->parameters(), 0.01);
    const auto step = [&] {
      optimizer.zero_grad();
      net->forward(at::ones({2, 128})).sum().backward();
      optimizer.step();
    };
    step();
    CheckpointManager manager(folder, group, test::quiet(true));
    manager.save(1, {.model = net, .optimizer = optimizer});
    step();
    const auto expected = test::bytes_of(net->parameters().front());
    optimizer.zero_grad();
    live->begin();
    manager.load(1, {.model = net, .optimizer = optimizer});
    // Parameters and two states, and a copy of what is being assigned.
    RANK_CHECK(live->peak() >= 3 * bytes);
    RANK_CHECK(live->peak() <= 3 * bytes + bytes / 4);
    step();
    RANK_CHECK(test::bytes_of(net->parameters().front()) == expected);
  });
}

TEST_CASE("ShardedLoad: values are read once, and not copied before all are there") {
  const test::TemporaryFolder folder;
  load_with<torch::optim::AdamW>(folder / "libtorch");
  load_with<optim::AdamW>(folder / "fused");
}

TEST_CASE("ShardedSave: two managers of two groups, in two threads of each rank") {
  const test::TemporaryFolder folder;
  test::run_ranks(2, [&](const GroupHandle& group) {
    const std::array<ProcessGroup, 2> groups{new_subgroups(group, 2), new_subgroups(group, 2)};
    const auto save_often = [&](size_t number) {
      test::ShardedRun run(number == 0 ? test::Kind::kFullyShard : test::Kind::kZero, groups[number]);
      run.train(0);
      CheckpointManager manager(folder / std::to_string(number), groups[number], test::quiet(true, number == 0));
      for (int64_t step = 1; step <= 20; ++step) {
        run.train(step);
        manager.save(step, run.state());
        if (step % 5 == 0) manager.load_latest(run.state());
      }
      manager.wait();
      const auto expected = run.whole();
      test::ShardedRun other(number == 0 ? test::Kind::kZero : test::Kind::kFullyShard, groups[number]);
      manager.load(20, other.state());
      RANK_CHECK(other.whole() == expected);
    };
    auto second = std::async(std::launch::async, save_often, 1);
    save_often(0);
    second.get();
  });
}

}  // namespace
}  // namespace ddp

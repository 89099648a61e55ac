// How a run begins: anew beside what was there, where it stopped, or not at all.
#include <torch/nn/modules/linear.h>

#include <cerrno>
#include <cstdlib>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <system_error>

#include <ddprun/training/start_run.h>

#include "tests/checkpoint/faulty_file_system.h"
#include "tests/checkpoint/unknown_optimizer.h"
#include "tests/support/captured_output.h"
#include "tests/support/catch.h"
#include "tests/support/errors.h"
#include "tests/support/rank_checks.h"
#include "tests/support/ranks.h"
#include "tests/support/temporary_folder.h"

namespace ddp {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;

constexpr int kRunRanks = 2;

class StartRunTest {
 protected:
  using Body = std::function<void(CheckpointManager&, torch::nn::Linear&, const TrainingState&, const GroupHandle&)>;

  /// A job of two ranks with a manager of directory `name`; what it printed.
  std::string job(const Body& body, const std::string& name = "run", CheckpointOptions options = {}) {
    options.notify = [](const std::string&) {};
    const test::CapturedStdout out;
    test::run_ranks(kRunRanks, [&](const GroupHandle& group) {
      torch::nn::Linear net(1, 1);
      fill(net, -1);
      CheckpointManager checkpoints(folder_ / name, group, options);
      body(checkpoints, net, {.model = net}, group);
    });
    return out.text();
  }

  /// An earlier run whose weights after epoch e are e.
  void train(int epochs, const std::string& name = "run") {
    job(
        [&](CheckpointManager& checkpoints, torch::nn::Linear& net, const TrainingState& state, const GroupHandle&) {
          for (int epoch = 1; epoch <= epochs; ++epoch) {
            fill(net, epoch);
            checkpoints.save(epoch, state);
          }
        },
        name);
  }

  static void fill(torch::nn::Linear& net, double value) {
    const torch::NoGradGuard no_grad;
    net->weight.fill_(value);
  }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  test::TemporaryFolder folder_;
};

TEST_CASE_METHOD(StartRunTest, "StartRun: a new run sets an earlier one aside") {
  const auto begin = [](CheckpointManager& checkpoints, torch::nn::Linear& net, const TrainingState& state,
                        const GroupHandle& group) {
    const auto start = start_run(checkpoints, state, group, std::nullopt);
    RANK_CHECK(start.step == 0);
    RANK_CHECK_FALSE(start.loaded);
    {
      RANK_INFO("its own weights");
      RANK_CHECK(net->weight.item<double>() == -1);
    }
    RANK_CHECK(checkpoints.list().empty());
    checkpoints.save(1, state);
  };
  UNSCOPED_INFO("nothing was there");
  CHECK(job(begin) == "");
  CHECK(job(begin) == "starting a new run: the earlier run's checkpoints are now in " + path("run/previous-1") + "\n");
  CHECK(std::filesystem::exists(folder_ / "run/previous-1/step-00000001/model.safetensors"));
  CHECK_THAT(job(begin), ContainsSubstring("previous-2"));
}

TEST_CASE_METHOD(StartRunTest, "StartRun: a state that no save would take is refused before anything is touched") {
  train(1);
  for (const auto& resume : {std::optional<std::string>(), std::optional<std::string>("")}) {
    for (const auto* name : {"run", "other"}) {
      job(
          [&](CheckpointManager& checkpoints, torch::nn::Linear& net, const TrainingState&, const GroupHandle& group) {
            test::UnknownOptimizer optimizer(net->parameters());
            RANK_CHECK_THROWS_MATCHES(
                start_run(checkpoints, {.model = net, .optimizer = optimizer}, group, resume), std::runtime_error,
                ContainsSubstring("the optimizer cannot be saved: it is a ddp::test::UnknownOptimizer"));
            RANK_CHECK(net->weight.item<double>() == -1);
          },
          name);
    }
  }
  CHECK(std::filesystem::exists(folder_ / "run/step-00000001"));
  CHECK_FALSE(std::filesystem::exists(folder_ / "run/previous-1"));
  CHECK_FALSE(std::filesystem::exists(folder_ / "other"));
}

TEST_CASE_METHOD(StartRunTest, "StartRun: resume takes the newest or the folder that is named") {
  train(3);
  const auto expects = [](const std::string& resume, int64_t step) {
    return [=](CheckpointManager& checkpoints, torch::nn::Linear& net, const TrainingState& state,
               const GroupHandle& group) {
      const auto start = start_run(checkpoints, state, group, resume);
      RANK_CHECK(start.step == step);
      RANK_REQUIRE(start.loaded);
      RANK_CHECK(start.loaded->step == step);
      RANK_INFO("on every rank");
      RANK_CHECK(net->weight.item<double>() == static_cast<double>(step));
    };
  };
  CHECK(job(expects("", 3)) == "resumed from " + path("run/step-00000003") + ": continuing with epoch 3\n");
  CHECK(job(expects(path("run/step-00000002"), 2), "other") ==
        "resumed from " + path("run/step-00000002") + ": continuing with epoch 2\n");
  INFO("nothing is set aside");
  CHECK_FALSE(std::filesystem::exists(folder_ / "run/previous-1"));
}

TEST_CASE_METHOD(StartRunTest, "StartRun: resume of nothing begins and says so") {
  const auto output =
      job([](CheckpointManager& checkpoints, torch::nn::Linear&, const TrainingState& state, const GroupHandle& group) {
        const auto start = start_run(checkpoints, state, group, "", "step");
        RANK_CHECK(start.step == 0);
        RANK_CHECK_FALSE(start.loaded);
      });
  CHECK(output == "no checkpoint in " + path("run") + " yet: starting from the beginning\n");
}

TEST_CASE_METHOD(StartRunTest, "StartRun: resume of nothing says where earlier runs are") {
  const auto begin = [](const std::optional<std::string>& resume) {
    return [=](CheckpointManager& checkpoints, torch::nn::Linear&, const TrainingState& state,
               const GroupHandle& group) { RANK_CHECK(start_run(checkpoints, state, group, resume).step == 0); };
  };
  train(1);
  job(begin(std::nullopt));
  CHECK(job(begin("")) == "no checkpoint in " + path("run") + " yet (an earlier run's checkpoints are in " +
                              path("run/previous-1") + "): starting from the beginning\n");
}

TEST_CASE_METHOD(StartRunTest, "StartRun: a run that goes on has the seed that it began with") {
  const uint64_t own = 5, saved = std::numeric_limits<uint64_t>::max();
  const auto seed = [&](const std::optional<std::string>& resume) {
    uint64_t found = 0;
    test::run_ranks(kRunRanks, [&](const GroupHandle& group) {
      // Where nothing is resumed no rank reads; else rank 0 alone.
      const std::string directory = group.rank() == 0 || !resume ? path("run") : path("none");
      const auto of_rank = seed_of_run({.seed = own, .checkpoint_dir = directory, .resume = resume}, group);
      if (group.rank() == 1) found = of_rank;
    });
    return found;
  };
  CHECK(seed("") == own);  // there is none
  train(1);
  CHECK(seed("") == own);  // of a program that does not save it
  job([&](CheckpointManager& checkpoints, torch::nn::Linear& net, const TrainingState&, const GroupHandle&) {
    TrainingState state{.model = net};
    state.values.set("seed", saved);
    checkpoints.save(2, state);
    state.values.set("seed", 7);
    checkpoints.save(3, state);
  });
  CHECK(seed("") == 7);
  CHECK(seed(path("run/step-00000002")) == saved);
  CHECK(seed(path("run/step-00000009")) == own);
  CHECK(seed(std::nullopt) == own);
}

TEST_CASE_METHOD(StartRunTest, "StartRun: a job that the launcher has started again goes on") {
  train(2);
  // The environment of a second attempt.
  std::string said;
  {
    const test::CapturedStdout out;
    auto group = init_process_group({.rank_info = RankInfo{.restart_count = 1}});
    torch::nn::Linear net(1, 1);
    CheckpointManager checkpoints(folder_ / "run", group, {.notify = [](const std::string&) {}});
    const auto start = start_run(checkpoints, {.model = net}, group, std::nullopt, "step");
    said = out.text();
    CHECK(start.step == 2);
  }
  CHECK_THAT(said, ContainsSubstring("continuing with step 2"));
}

TEST_CASE_METHOD(StartRunTest, "StartRun: a job that Slurm has requeued goes on") {
  for (const std::string restarts : {"1", "0", ""}) {
    const std::string name = "run" + restarts;
    train(2, name);
    ::setenv("SLURM_RESTART_COUNT", restarts.c_str(), 1);
    job(
        [&](CheckpointManager& checkpoints, torch::nn::Linear&, const TrainingState& state, const GroupHandle& group) {
          RANK_CHECK(start_run(checkpoints, state, group, std::nullopt, "step").step == (restarts == "1" ? 2 : 0));
        },
        name);
    ::unsetenv("SLURM_RESTART_COUNT");
  }
}

TEST_CASE_METHOD(StartRunTest, "StartRun: the directory belongs to the run from then on") {
  train(1);
  for (const auto& resume : {std::optional<std::string>(), std::optional<std::string>("")}) {
    job([&](CheckpointManager& checkpoints, torch::nn::Linear&, const TrainingState& state, const GroupHandle& group) {
      start_run(checkpoints, state, group, resume);
      CheckpointManager second(checkpoints.directory(), group, {.notify = [](const std::string&) {}});
      RANK_CHECK_THAT(test::error_of([&] { start_run(second, state, group, std::nullopt); }),
                      StartsWith("cannot save in") && ContainsSubstring("one at a time can"));
    });
  }
  INFO("a run under way is not set aside");
  CHECK_FALSE(std::filesystem::exists(folder_ / "run/previous-2"));
}

TEST_CASE_METHOD(StartRunTest, "StartRun: what rank 0 cannot do fails on every rank") {
  train(1);
  const auto faults = std::make_shared<test::FaultyFileSystem>([](int, const std::string& operation) {
    if (operation.starts_with("make")) throw std::system_error(EROFS, std::generic_category(), "injected");
  });
  const auto begin = [](CheckpointManager& checkpoints, torch::nn::Linear&, const TrainingState& state,
                        const GroupHandle& group) {
    RANK_CHECK_THAT(test::error_of([&] { start_run(checkpoints, state, group, std::nullopt); }),
                    StartsWith("cannot set an earlier run's checkpoints aside in") && ContainsSubstring("injected"));
  };
  job(begin, "run", {.file_system = faults});
  CHECK(std::filesystem::exists(folder_ / "run/step-00000001"));
}

}  // namespace
}  // namespace ddp

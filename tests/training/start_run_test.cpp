// How a run begins: anew beside what was there, where it stopped, or not at all.
#include "training/start_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <cerrno>
#include <functional>
#include <memory>
#include <system_error>

#include "tests/checkpoint/faulty_file_system.h"
#include "tests/support/errors.h"
#include "tests/support/ranks.h"
#include "tests/support/temporary_folder.h"

namespace ddp {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int kRanks = 2;

class StartRunTest : public ::testing::Test {
 protected:
  using Body = std::function<void(CheckpointManager&, torch::nn::Linear&, const TrainingState&, const GroupHandle&)>;

  /// A job of two ranks with a manager of directory `name`; what it printed.
  std::string job(const Body& body, const std::string& name = "run", CheckpointOptions options = {}) {
    options.notify = [](const std::string&) {};
    ::testing::internal::CaptureStdout();
    test::run_ranks(kRanks, [&](const GroupHandle& group) {
      torch::nn::Linear net(1, 1);
      fill(net, -1);
      CheckpointManager checkpoints(folder_ / name, group, options);
      body(checkpoints, net, {.model = net}, group);
    });
    return ::testing::internal::GetCapturedStdout();
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

TEST_F(StartRunTest, a_new_run_sets_an_earlier_one_aside) {
  const auto begin = [](CheckpointManager& checkpoints, torch::nn::Linear& net, const TrainingState& state,
                        const GroupHandle& group) {
    const auto start = start_run(checkpoints, state, group, std::nullopt);
    EXPECT_EQ(start.step, 0);
    EXPECT_FALSE(start.loaded);
    EXPECT_EQ(net->weight.item<double>(), -1) << "its own weights";
    EXPECT_TRUE(checkpoints.list().empty());
    checkpoints.save(1, state);
  };
  EXPECT_EQ(job(begin), "") << "nothing was there";
  EXPECT_EQ(job(begin), "a new run: the earlier one's checkpoints are in " + path("run/previous-1") + " now\n");
  EXPECT_TRUE(std::filesystem::exists(folder_ / "run/previous-1/step-00000001/model.safetensors"));
  EXPECT_THAT(job(begin), HasSubstr("previous-2"));
}

TEST_F(StartRunTest, resume_takes_the_newest_or_the_folder_that_is_named) {
  train(3);
  const auto expects = [](const std::string& resume, int64_t step) {
    return [=](CheckpointManager& checkpoints, torch::nn::Linear& net, const TrainingState& state,
               const GroupHandle& group) {
      const auto start = start_run(checkpoints, state, group, resume);
      EXPECT_EQ(start.step, step);
      ASSERT_TRUE(start.loaded);
      EXPECT_EQ(start.loaded->step, step);
      EXPECT_EQ(net->weight.item<double>(), static_cast<double>(step)) << "on every rank";
    };
  };
  EXPECT_EQ(job(expects("", 3)), "resumed from " + path("run/step-00000003") + ": continuing with epoch 3\n");
  EXPECT_EQ(job(expects(path("run/step-00000002"), 2), "other"),
            "resumed from " + path("run/step-00000002") + ": continuing with epoch 2\n");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run/previous-1")) << "nothing is set aside";
}

TEST_F(StartRunTest, resume_of_nothing_begins_and_says_so) {
  const auto output =
      job([](CheckpointManager& checkpoints, torch::nn::Linear&, const TrainingState& state, const GroupHandle& group) {
        const auto start = start_run(checkpoints, state, group, "", "step");
        EXPECT_EQ(start.step, 0);
        EXPECT_FALSE(start.loaded);
      });
  EXPECT_EQ(output, "no checkpoint in " + path("run") + " yet: starting from the beginning\n");
}

TEST_F(StartRunTest, a_job_that_the_launcher_has_started_again_goes_on) {
  train(2);
  // The environment of a second attempt.
  ::testing::internal::CaptureStdout();
  auto group = init_process_group({.rank_info = RankInfo{.restart_count = 1}});
  torch::nn::Linear net(1, 1);
  CheckpointManager checkpoints(folder_ / "run", group, {.notify = [](const std::string&) {}});
  const auto start = start_run(checkpoints, {.model = net}, group, std::nullopt, "step");
  EXPECT_EQ(start.step, 2);
  EXPECT_THAT(::testing::internal::GetCapturedStdout(), HasSubstr("continuing with step 2"));
}

TEST_F(StartRunTest, the_directory_belongs_to_the_run_from_then_on) {
  train(1);
  for (const auto& resume : {std::optional<std::string>(), std::optional<std::string>("")}) {
    job([&](CheckpointManager& checkpoints, torch::nn::Linear&, const TrainingState& state, const GroupHandle& group) {
      start_run(checkpoints, state, group, resume);
      CheckpointManager second(checkpoints.directory(), group, {.notify = [](const std::string&) {}});
      EXPECT_THAT(test::error_of([&] { start_run(second, state, group, std::nullopt); }),
                  AllOf(StartsWith("cannot save in"), HasSubstr("one at a time can")));
    });
  }
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run/previous-2")) << "a run under way is not set aside";
}

TEST_F(StartRunTest, what_rank_0_cannot_do_fails_on_every_rank) {
  train(1);
  const auto faults = std::make_shared<test::FaultyFileSystem>([](int, const std::string& operation) {
    if (operation.starts_with("make")) throw std::system_error(EROFS, std::generic_category(), "injected");
  });
  const auto begin = [](CheckpointManager& checkpoints, torch::nn::Linear&, const TrainingState& state,
                        const GroupHandle& group) {
    EXPECT_THAT(test::error_of([&] { start_run(checkpoints, state, group, std::nullopt); }),
                AllOf(StartsWith("cannot set an earlier run's checkpoints aside in"), HasSubstr("injected")));
  };
  job(begin, "run", {.file_system = faults});
  EXPECT_TRUE(std::filesystem::exists(folder_ / "run/step-00000001"));
}

}  // namespace
}  // namespace ddp

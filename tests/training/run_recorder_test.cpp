// What a run tells: exact means over ranks, one writer, curves and tables that go on after a resume.
#include "training/run_recorder.h"

#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <cmath>
#include <limits>
#include <memory>
#include <stdexcept>

#include "tests/monitor/event_files.h"
#include "tests/support/ranks.h"

namespace ddp {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsNan;
using test::scalars_in;
using ::testing::SizeIs;
using test::TemporaryFolder;

/// The steps and values of one curve.
std::vector<std::pair<int64_t, float>> curve(const std::filesystem::path& folder, const std::string& tag) {
  std::vector<std::pair<int64_t, float>> points;
  for (const auto& scalar : scalars_in(folder)) {
    if (scalar.tag == tag) points.emplace_back(scalar.step, scalar.value);
  }
  return points;
}

/// Rank 0's losses are those of 3 samples each, the others' of 1.
int64_t samples_of(const GroupHandle& group) {
  return group.rank() == 0 ? 3 : 1;
}

struct Trained {
  torch::nn::Linear net{2, 1};
  torch::optim::SGD optimizer{net->parameters(), torch::optim::SGDOptions(0.25)};
};

class RunRecorderTest : public ::testing::TestWithParam<test::Wire> {
 protected:
  /// One epoch on two ranks: at its batch i the loss is i on rank 0, i + 4 on rank 1. So the mean of n batches is
  /// (n - 1) / 2 + 1.
  void run_epoch(RunRecorderOptions options, int64_t epoch, int64_t steps, bool shows_all = true) {
    options.tensorboard = board();
    options.metrics = table();
    test::run_ranks(2,
                    [&](const GroupHandle& group) {
                      Trained trained;
                      RunRecorder recorder(group, trained.optimizer, options);
                      recorder.begin_epoch(epoch, steps);
                      for (int64_t step = 0; step < steps; ++step) {
                        recorder.step(at::ones({}) * static_cast<double>(step + 4 * group.rank()), samples_of(group));
                      }
                      EXPECT_DOUBLE_EQ(recorder.mean_loss(), static_cast<double>(steps - 1) / 2 + 1);
                      EXPECT_EQ(recorder.steps_done(), options.steps_done + steps);
                      if (shows_all) recorder.images("images", at::zeros({2, 3, 4, 4}));
                      if (shows_all) recorder.weights(trained.net);
                      recorder.end_epoch({ratio_metric("accuracy", 3, 4), {"loss", 1.5}});
                      if (shows_all) recorder.write_hparams({{"lr", 0.25}});
                    },
                    {.wire = GetParam()});
  }

  std::string board() const { return (folder_.path() / "board").string(); }
  std::string table() const { return (folder_.path() / "table.csv").string(); }

  TemporaryFolder folder_;
};

TEST_P(RunRecorderTest, means_over_all_ranks_samples_go_everywhere_and_rank_0_alone_writes) {
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  run_epoch({.reports_per_epoch = 2}, 0, 5);
  EXPECT_EQ(::testing::internal::GetCapturedStdout(),
            "epoch 0: loss 3.0000, validation accuracy 75.0 % (3/4), validation loss 1.5000\n");
  const auto shown = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(shown, HasSubstr("epoch 0: 100% 5/5"));
  EXPECT_THAT(shown, HasSubstr("loss=3"));

  using Points = std::vector<std::pair<int64_t, float>>;
  EXPECT_EQ(curve(board(), "loss/train"), (Points{{2, 1.5F}, {4, 2.5F}, {5, 3.0F}}))
      << "every second batch, and the last";
  EXPECT_EQ(curve(board(), "lr"), (Points{{2, 0.25F}, {4, 0.25F}, {5, 0.25F}}));
  EXPECT_EQ(curve(board(), "accuracy/validation"), (Points{{5, 0.75F}}));
  EXPECT_EQ(curve(board(), "loss/validation"), (Points{{5, 1.5F}}));
  EXPECT_EQ(test::read_file(table()), "epoch,loss,accuracy,validation_loss\n0,3,0.75,1.5\n");
  const auto files = test::event_files(board());
  ASSERT_THAT(files, SizeIs(1)) << "of rank 0";
  const auto content = test::read_file(files.front());
  for (const char* tag : {"images", "weight", "bias", "hparam/accuracy", "hparam/loss"})
    EXPECT_THAT(content, HasSubstr(tag));
}

TEST_P(RunRecorderTest, a_resumed_run_goes_on_and_a_new_one_begins_anew) {
  run_epoch({}, 0, 4, false);
  run_epoch({.steps_done = 4}, 1, 4, false);
  std::vector<int64_t> steps;
  for (const auto& [step, value] : curve(board(), "loss/train")) steps.push_back(step);
  EXPECT_THAT(steps, ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
  EXPECT_EQ(test::read_file(table()), "epoch,loss,accuracy,validation_loss\n0,2.5,0.75,1.5\n1,2.5,0.75,1.5\n");
  run_epoch({}, 0, 2, false);
  EXPECT_EQ(test::read_file(table()), "epoch,loss,accuracy,validation_loss\n0,1.5,0.75,1.5\n");
}

TEST_P(RunRecorderTest, a_loss_that_is_not_finite_stops_every_rank) {
  for (const bool is_nan : {true, false}) {
    const double value = is_nan ? std::nan("") : -std::numeric_limits<double>::infinity();
    test::run_ranks(
        2,
        [&](const GroupHandle& group) {
          Trained trained;
          RunRecorder recorder(group, trained.optimizer);
          recorder.begin_epoch(3, 8);
          recorder.step(at::ones({}), 1);
          try {
            recorder.step(group.rank() == 1 ? at::tensor(value) : at::ones({}), 1);
            ADD_FAILURE() << "rank " << group.rank() << " goes on";
          } catch (const std::runtime_error& error) {
            EXPECT_EQ(std::string(error.what()),
                      std::string("the loss is ") + (is_nan ? "nan" : "infinite") +
                          " at step 2 of epoch 3, so training stops without saving this epoch; try a learning rate "
                          "below 0.25");
          }
        },
        {.wire = GetParam()});
  }
}

INSTANTIATE_TEST_SUITE_P(wires, RunRecorderTest, ::testing::Values(test::Wire::kGloo, test::Wire::kLate));

TEST(RunRecorder, without_files_it_shows_and_averages_all_the_same) {
  auto group = init_process_group({.rank_info = RankInfo{}});
  Trained trained;
  RunRecorder recorder(group, trained.optimizer);
  EXPECT_EQ(recorder.tensorboard(), nullptr);
  EXPECT_THAT(recorder.mean_loss(), IsNan());
  recorder.write_hparams({});  // no epoch has ended
  ::testing::internal::CaptureStdout();
  // Fewer batches than were announced, as when a loader ends early.
  recorder.begin_epoch(0, 10);
  recorder.step(at::tensor(2.0F), 1);
  recorder.step(at::tensor(5.0F), 2);
  recorder.images("images", at::zeros({1, 3, 2, 2}));
  recorder.weights(trained.net);
  recorder.end_epoch();
  // No batch at all.
  recorder.begin_epoch(1, 0);
  recorder.end_epoch({{"accuracy", 0.5}});
  EXPECT_EQ(::testing::internal::GetCapturedStdout(),
            "epoch 0: loss 4.0000\nepoch 1: loss nan, validation accuracy 0.5000\n");
  EXPECT_THROW(RunRecorder(group, trained.optimizer, {.reports_per_epoch = 0}), std::invalid_argument);
}

TEST(RunRecorder, keeps_no_graph_alive) {
  auto group = init_process_group({.rank_info = RankInfo{}});
  Trained trained;
  RunRecorder recorder(group, trained.optimizer);
  recorder.begin_epoch(0, 100);
  at::Tensor loss = at::ones({}).requires_grad_() * 2;
  recorder.step(loss, 1);
  const auto graph = std::weak_ptr(loss.grad_fn());
  loss.reset();
  EXPECT_TRUE(graph.expired());
  EXPECT_EQ(recorder.mean_loss(), 2);
}

}  // namespace
}  // namespace ddp

// What a run tells: exact means over ranks, one writer, curves and tables that go on after a resume.
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <cmath>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <ddprun/training/run_recorder.h>

#include "comm/versions/autograd_node.h"
#include "tests/monitor/event_files.h"
#include "tests/support/captured_output.h"
#include "tests/support/catch.h"
#include "tests/support/every_wire.h"
#include "tests/support/matchers.h"
#include "tests/support/rank_checks.h"
#include "tests/support/ranks.h"

namespace ddp {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::IsNaN;
using Catch::Matchers::SizeIs;
using Catch::Matchers::WithinULP;
using test::ElementsAre;
using test::scalars_in;
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

class RunRecorderTest : protected test::EveryWire {
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
                      RANK_CHECK_THAT(recorder.mean_loss(), WithinULP(static_cast<double>(steps - 1) / 2 + 1, 4));
                      RANK_CHECK(recorder.steps_done() == options.steps_done + steps);
                      if (shows_all) recorder.images("images", at::zeros({2, 3, 4, 4}));
                      if (shows_all) recorder.weights(trained.net);
                      recorder.end_epoch({ratio_metric("accuracy", 3, 4), {"loss", 1.5}});
                      if (shows_all) recorder.write_hparams({{"lr", 0.25}});
                    },
                    {.wire = wire_});
  }

  std::string board() const { return (folder_.path() / "board").string(); }
  std::string table() const { return (folder_.path() / "table.csv").string(); }

  TemporaryFolder folder_;
};

TEST_CASE_METHOD(RunRecorderTest, "RunRecorder: means over all ranks' samples go everywhere and rank 0 alone writes") {
  std::string said;
  std::string shown;
  {
    const test::CapturedStdout out;
    const test::CapturedStderr err;
    run_epoch({.reports_per_epoch = 2}, 0, 5);
    said = out.text();
    shown = err.text();
  }
  CHECK(said == "epoch 0: loss 3.0000, validation accuracy 75.0 % (3/4), validation loss 1.5000\n");
  CHECK_THAT(shown, ContainsSubstring("epoch 0: 100% 5/5"));
  CHECK_THAT(shown, ContainsSubstring("loss=3"));

  using Points = std::vector<std::pair<int64_t, float>>;
  UNSCOPED_INFO("every second batch, and the last: the mean of those since the point before");
  CHECK(curve(board(), "loss/train") == Points{{2, 1.5F}, {4, 3.5F}, {5, 5.0F}});
  CHECK(curve(board(), "lr") == Points{{2, 0.25F}, {4, 0.25F}, {5, 0.25F}});
  CHECK(curve(board(), "accuracy/validation") == Points{{5, 0.75F}});
  CHECK(curve(board(), "loss/validation") == Points{{5, 1.5F}});
  CHECK(test::read_file(table()) == "epoch,loss,accuracy,validation_loss\n0,3,0.75,1.5\n");
  const auto files = test::event_files(board());
  UNSCOPED_INFO("of rank 0");
  REQUIRE_THAT(files, SizeIs(1));
  const auto content = test::read_file(files.front());
  for (const char* tag : {"images", "weight", "bias", "hparam/accuracy", "hparam/loss"})
    CHECK_THAT(content, ContainsSubstring(tag));
}

TEST_CASE_METHOD(RunRecorderTest, "RunRecorder: a resumed run goes on and a new one begins anew") {
  run_epoch({}, 0, 4, false);
  run_epoch({.steps_done = 4}, 1, 4, false);
  std::vector<int64_t> steps;
  for (const auto& [step, value] : curve(board(), "loss/train")) steps.push_back(step);
  CHECK_THAT(steps, ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
  CHECK(test::read_file(table()) == "epoch,loss,accuracy,validation_loss\n0,2.5,0.75,1.5\n1,2.5,0.75,1.5\n");
  run_epoch({}, 0, 2, false);
  CHECK(test::read_file(table()) == "epoch,loss,accuracy,validation_loss\n0,1.5,0.75,1.5\n");
}

TEST_CASE_METHOD(RunRecorderTest, "RunRecorder: a loss that is not finite stops every rank") {
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
            RANK_FAIL_CHECK("rank " << group.rank() << " goes on");
          } catch (const std::runtime_error& error) {
            RANK_CHECK(
                std::string(error.what()) ==
                std::string("the loss is ") + (is_nan ? "nan" : "infinite") +
                    " at step 2 of epoch 3, so training stops without saving this epoch; usual causes: the learning "
                    "rate is too high (it is 0.25), the data are not finite, or 16-bit numbers overflow");
          }
        },
        {.wire = wire_});
  }
}

TEST_CASE("RunRecorder: without files it shows and averages all the same") {
  auto group = init_process_group({.rank_info = RankInfo{}});
  Trained trained;
  RunRecorder recorder(group, trained.optimizer);
  CHECK(recorder.tensorboard() == nullptr);
  CHECK_THAT(recorder.mean_loss(), IsNaN());
  recorder.write_hparams({});  // no epoch has ended
  std::string said, shown;
  {
    const test::CapturedStdout out;
    const test::CapturedStderr errors;
    // Fewer batches than were announced, as when a loader ends early.
    recorder.begin_epoch(0, 10);
    recorder.step(at::tensor(2.0F), 1);
    recorder.step(at::tensor(5.0F), 2);
    recorder.images("images", at::zeros({1, 3, 2, 2}));
    recorder.weights(trained.net);
    recorder.end_epoch();
    // No batch at all, as after a resume behind the epoch's last one: its numbers are not replaced by none.
    recorder.begin_epoch(1, 0);
    recorder.end_epoch({{"accuracy", 0.5}});
    said = out.text();
    shown = errors.text();
  }
  CHECK(said == "epoch 0: loss 4.0000\n");
  CHECK_THAT(shown, ContainsSubstring("epoch 0:"));
  CHECK_THAT(shown, !ContainsSubstring("epoch 1:"));
  CHECK_THROWS_AS(RunRecorder(group, trained.optimizer, {.reports_per_epoch = 0}), std::invalid_argument);
}

TEST_CASE("RunRecorder: a validation loss that is not finite is told, and training goes on") {
  auto group = init_process_group({.rank_info = RankInfo{}});
  Trained trained;
  RunRecorder recorder(group, trained.optimizer);
  const test::CapturedStderr errors;
  for (const double loss : {0.5, std::nan("")}) {
    recorder.begin_epoch(4, 1);
    recorder.step(at::tensor(2.0F), 1);
    recorder.end_epoch({{"loss", loss}, {"dice", std::nan("")}});
    const std::string warning = "WARNING: the validation loss of epoch 4 is nan";
    CHECK((errors.text().find(warning) != std::string::npos) == std::isnan(loss));
  }
}

TEST_CASE("RunRecorder: keeps no graph alive") {
  auto group = init_process_group({.rank_info = RankInfo{}});
  Trained trained;
  RunRecorder recorder(group, trained.optimizer);
  recorder.begin_epoch(0, 100);
  at::Tensor loss = at::ones({}).requires_grad_() * 2;
  recorder.step(loss, 1);
  const versions::WeakNodePtr graph(loss.grad_fn());
  loss.reset();
  CHECK(graph.expired());
  CHECK(recorder.mean_loss() == 2);
}

}  // namespace
}  // namespace ddp

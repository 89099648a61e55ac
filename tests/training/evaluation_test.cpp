// Evaluation over several ranks gives what one process alone gets, and leaves the model and the thread as they were.
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <mutex>
#include <stdexcept>
#include <vector>

#include <ddprun/data/datasets.h>
#include <ddprun/ddp/distributed_data_parallel.h>
#include <ddprun/metrics/metrics.h>
#include <ddprun/training/evaluation.h>

#include "tests/support/catch.h"
#include "tests/support/errors.h"
#include "tests/support/every_wire.h"
#include "tests/support/placement.h"
#include "tests/support/rank_checks.h"
#include "tests/support/ranks.h"

namespace ddp {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::UnorderedRangeEquals;
using Catch::Matchers::WithinAbs;
using test::here;

constexpr int kRanks = 3;
constexpr int kClasses = 3;

/// Running statistics, a frozen layer that is in evaluation mode during training as well, and one that must not drop.
struct NetImpl : torch::nn::Module {
  NetImpl()
      : norm(register_module("norm", torch::nn::BatchNorm1d(4))),
        frozen(register_module("frozen", torch::nn::BatchNorm1d(4))),
        dropout(register_module("dropout", torch::nn::Dropout(0.9))),
        linear(register_module("linear", torch::nn::Linear(4, kClasses))) {
    frozen->eval();
  }
  torch::Tensor forward(const torch::Tensor& x) { return linear(dropout(frozen(norm(x)))); }
  torch::nn::BatchNorm1d norm, frozen;
  torch::nn::Dropout dropout;
  torch::nn::Linear linear;
};
TORCH_MODULE(Net);

/// Equal parameters on all ranks; running statistics are rank 0's, or others.
Net net_of_rank(int rank) {
  auto net = test::placed(Net());
  const torch::NoGradGuard no_grad;
  double value = 0.1;
  for (auto& parameter : net->parameters()) {
    parameter.copy_(at::linspace(-value, 1.0, parameter.numel()).view(parameter.sizes()));
    value += 0.3;
  }
  for (auto& buffer : net->buffers()) buffer.fill_(1 + 5 * rank);
  return net;
}

TensorDataset samples(int64_t count) {
  const auto data = at::sin(at::arange(count * 4, at::kFloat)).view({count, 4});
  return {data, at::arange(count, at::kLong)};  // targets tell which sample it is
}

ProcessGroup alone() {
  return init_process_group({.rank_info = RankInfo{}});
}

struct Results {
  std::vector<int64_t> confusion;
  AccuracyCounts top;
  double loss = 0;
};

Results evaluated(Net& net, const TensorDataset& dataset, const GroupHandle& group, const EvaluationOptions& options) {
  ConfusionMatrix confusion(kClasses);
  Accuracy accuracy({1, 2});
  Average loss;
  for (const auto& batch : evaluate(net, dataset, group, options)) {
    const auto target = batch.target.remainder(kClasses);
    const auto scores = net(batch.data);
    confusion.update(scores.argmax(1), target);
    accuracy.update(scores, target);
    loss.update(torch::nn::functional::cross_entropy(scores, target), target.size(0));
  }
  return {confusion.compute(group).counts, accuracy.counts(group), loss.compute(group)};
}

class EvaluationTest : protected test::EveryWire {};

TEST_CASE_METHOD(EvaluationTest, "Evaluation: uneven and empty shares give the results of one process") {
  for (const int64_t count : {1, 2, 11, 12, 50}) {
    const auto dataset = samples(count);
    auto reference = net_of_rank(0);
    // One process computes every sample by hand.
    Results expected;
    {
      const torch::NoGradGuard no_grad;
      reference->eval();
      const std::vector<int64_t> all = [&] {
        std::vector<int64_t> indices(static_cast<size_t>(count));
        for (int64_t i = 0; i < count; ++i) indices[static_cast<size_t>(i)] = i;
        return indices;
      }();
      const auto batch = dataset.get_batch(all);
      const auto target = here(batch.target).remainder(kClasses);
      const auto scores = reference(here(batch.data));
      std::vector<int64_t> confusion(kClasses * kClasses, 0);
      const auto guesses = scores.argmax(1);
      int64_t right = 0;
      for (int64_t i = 0; i < count; ++i) {
        const auto target_class = target[i].item<int64_t>();
        ++confusion[static_cast<size_t>(target_class * kClasses + guesses[i].item<int64_t>())];
        right += guesses[i].item<int64_t>() == target_class ? 1 : 0;
      }
      expected = {confusion,
                  {.right = {right}, .samples = count},
                  torch::nn::functional::cross_entropy(scores.to(at::kDouble), target).item<double>()};
    }
    for (const EvaluationOptions options : {EvaluationOptions{}, {.batch_size = 3}, {.batch_size = 2, .workers = 2}}) {
      test::run_ranks(kRanks,
                      [&](const GroupHandle& group) {
                        auto net = net_of_rank(group.rank());
                        const auto results = evaluated(net, dataset, group, options);
                        {
                          RANK_INFO(count << " samples");
                          RANK_CHECK(results.confusion == expected.confusion);
                        }
                        RANK_CHECK(results.top.right.front() == expected.top.right.front());
                        RANK_CHECK(results.top.samples == count);
                        RANK_CHECK_THAT(results.loss, WithinAbs(expected.loss, 1e-6 * expected.loss));
                      },
                      {.wire = wire_});
    }
    const auto single = evaluated(reference, dataset, alone(), {.batch_size = 4});
    CHECK(single.confusion == expected.confusion);
  }
}

TEST_CASE_METHOD(EvaluationTest, "Evaluation: every sample is seen by exactly one rank") {
  for (const int64_t count : {0, 2, 11}) {
    const auto dataset = samples(count);
    std::mutex mutex;
    std::vector<int64_t> seen;
    test::run_ranks(kRanks,
                    [&](const GroupHandle& group) {
                      auto net = net_of_rank(0);
                      for (const auto& batch : evaluate(net, dataset, group, {.batch_size = 2})) {
                        const std::lock_guard lock(mutex);
                        for (int64_t i = 0; i < batch.target.size(0); ++i)
                          seen.push_back(batch.target[i].item<int64_t>());
                      }
                    },
                    {.wire = wire_});
    std::vector<int64_t> all;
    for (int64_t i = 0; i < count; ++i) all.push_back(i);
    CHECK_THAT(seen, UnorderedRangeEquals(all));
  }
}

void expect_as_made(const Net& net, int rank) {
  RANK_CHECK(net->is_training());
  RANK_CHECK(net->norm->is_training());
  {
    RANK_INFO("it was not before");
    RANK_CHECK_FALSE(net->frozen->is_training());
  }
  RANK_CHECK(at::GradMode::is_enabled());
  for (const auto& buffer : net->buffers()) {
    RANK_INFO(rank);
    RANK_CHECK(buffer.eq(1 + 5 * rank).all().item<bool>());
  }
}

TEST_CASE("Evaluation: model and thread are as before also after a break and an exception") {
  const auto dataset = samples(20);
  test::run_ranks(kRanks, [&](const GroupHandle& group) {
    auto net = net_of_rank(group.rank());
    int batches = 0;
    for ([[maybe_unused]] const auto& batch : evaluate(net, dataset, group, {.batch_size = 3})) {
      RANK_CHECK_FALSE(at::GradMode::is_enabled());
      RANK_CHECK_FALSE(net->is_training());
      RANK_CHECK_FALSE(net->dropout->is_training());
      for (const auto& buffer : net->buffers()) {
        RANK_INFO("rank 0's");
        RANK_CHECK(buffer.eq(1).all().item<bool>());
      }
      ++batches;
    }
    RANK_CHECK(batches >= 2);
    expect_as_made(net, group.rank());
    for ([[maybe_unused]] const auto& batch : evaluate(net, dataset, group)) break;
    expect_as_made(net, group.rank());
    RANK_CHECK_THROWS_AS(([&] {
                           for ([[maybe_unused]] const auto& batch : evaluate(net, dataset, group))
                             throw std::logic_error("of the body");
                         })(),
                         std::logic_error);
    expect_as_made(net, group.rank());
  });
}

TEST_CASE("Evaluation: training goes on with the bits that it has without") {
  std::vector<at::Tensor> trained[2][2];  // [evaluates][rank]
  for (const bool evaluates : {false, true}) {
    test::run_ranks(2, [&](const GroupHandle& group) {
      auto net = net_of_rank(0);
      // Each rank keeps its own running statistics.
      DistributedDataParallel<Net> model(net, group, {.broadcast_buffers = false});
      torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1));
      net->dropout->eval();
      const auto validation = samples(7);
      for (int64_t step = 0; step < 4; ++step) {
        const auto data =
            at::cos(here(at::arange(24, at::kFloat)).view({6, 4}) * static_cast<double>(step + 1 + group.rank()));
        optimizer.zero_grad();
        const auto target = here(at::arange(6, at::kLong)).remainder(kClasses);
        const auto loss = torch::nn::functional::cross_entropy(model(data), target);
        // Before its backward, even: what it has saved stays.
        if (evaluates) evaluated(net, validation, group, {.batch_size = 2});
        loss.backward();
        optimizer.step();
      }
      auto& tensors = trained[evaluates ? 1 : 0][group.rank()];
      for (const auto& parameter : net->parameters()) tensors.push_back(parameter.detach().cpu().clone());
      for (const auto& buffer : net->buffers()) tensors.push_back(buffer.cpu().clone());
    });
  }
  for (int rank = 0; rank < 2; ++rank) {
    REQUIRE(trained[0][rank].size() == trained[1][rank].size());
    for (size_t i = 0; i < trained[0][rank].size(); ++i) {
      INFO(i);
      CHECK(trained[0][rank][i].equal(trained[1][rank][i]));
    }
  }
  const size_t running_mean = net_of_rank(0)->parameters().size();
  INFO("there was something to keep");
  CHECK_FALSE(trained[1][0][running_mean].equal(trained[1][1][running_mean]));
}

struct CountingImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) { return x * weight; }
  at::Tensor weight = register_parameter("weight", at::ones({1}));
  at::Tensor counts = register_buffer("counts", at::zeros({3}, at::kShort));
};
TORCH_MODULE(Counting);

TEST_CASE("Evaluation: a buffer of a dtype that the backend lacks is named") {
  if (test::is_on_devices()) SKIP("NCCL takes bytes of any dtype");
  test::run_ranks(2, [&](const GroupHandle& group) {
    Counting net(std::make_shared<CountingImpl>());
    const auto dataset = samples(2);
    const auto run = [&] {
      for (const auto& batch : evaluate(net, dataset, group, {.batch_size = 1})) net(batch.data);
    };
    RANK_CHECK_THAT(test::error_of<std::invalid_argument>(run),
                    ContainsSubstring("evaluation: buffer 'counts': ") && ContainsSubstring("do not support Short"));
  });
}

TEST_CASE("Evaluation: settings out of range are refused and nothing is changed") {
  auto net = net_of_rank(0);
  const auto dataset = samples(3);
  CHECK_THROWS_AS(evaluate(net, dataset, alone(), {.batch_size = 0}), std::invalid_argument);
  CHECK_THROWS_AS(evaluate(net, dataset, alone(), {.workers = -1}), std::invalid_argument);
  expect_as_made(net, 0);
}

}  // namespace
}  // namespace ddp

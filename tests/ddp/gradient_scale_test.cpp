// Collectives with gradients beside DistributedDataParallel: the scale of the gradients (docs/collectives.md has the
// table), and a rank that does not use an output.
#include <torch/nn/functional/loss.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <ddprun/comm/collectives.h>
#include <ddprun/comm/functional.h>
#include <ddprun/ddp/distributed_data_parallel.h>

#include "tests/ddp/support.h"
#include "tests/support/catch.h"
#include "tests/support/errors.h"
#include "tests/support/every_wire.h"
#include "tests/support/rank_checks.h"

namespace ddp {
namespace {

using Catch::Matchers::ContainsSubstring;
using test::error_of;
using test::make;
using test::numbers;
using test::run_ranks;
using test::TwoLayers;

constexpr int64_t kRowsOfRank = 3;  // of a rank
constexpr int64_t kScaleNet = 7;

torch::Tensor rows_of_rank(int64_t rank) {
  return numbers({kRowsOfRank, 6}, 100 + rank);
}

/// Of each row the cross entropy against all rows, where row `first` of those is the first one's right class.
torch::Tensor row_losses(const torch::Tensor& rows, int64_t first, const torch::Tensor& all) {
  namespace F = torch::nn::functional;
  const auto right = torch::arange(first, first + rows.size(0)).to(rows.device());
  return F::cross_entropy(rows.mm(all.t()), right, F::CrossEntropyFuncOptions().reduction(torch::kNone));
}

torch::Tensor flat_gradient(const TwoLayers& net) {
  std::vector<torch::Tensor> parts;
  for (const auto& parameter : net->parameters()) parts.push_back(parameter.grad().flatten());
  return torch::cat(parts);
}

/// The gradient of the mean over the rows of all ranks.
torch::Tensor gradient_of_one_process(int64_t ranks) {
  auto net = make<TwoLayers>(kScaleNet);
  std::vector<torch::Tensor> rows;
  for (int64_t rank = 0; rank < ranks; ++rank) rows.push_back(rows_of_rank(rank));
  const auto embeddings = net(torch::cat(rows));
  row_losses(embeddings, 0, embeddings).mean().backward();
  return flat_gradient(net);
}

/// That of a rank with DistributedDataParallel, which has another `loss` for its own embeddings.
torch::Tensor gradient_of_rank(const GroupHandle& group,
                               const std::function<torch::Tensor(const torch::Tensor& own)>& loss) {
  auto net = make<TwoLayers>(kScaleNet);
  DistributedDataParallel model(net, group);
  loss(model(rows_of_rank(group.rank()))).backward();
  return flat_gradient(net);
}

/// To the rounding of its largest numbers: the small ones are differences of such.
void expect_gradient(const torch::Tensor& gradient, const torch::Tensor& expected) {
  const double difference = (gradient - expected).abs().max().item<double>();
  RANK_CHECK(difference < 1e-5 * expected.abs().max().item<double>());
}

/// As programs without functional::all_gather() do: only this rank's own part has a gradient.
torch::Tensor gather_with_own_part(const torch::Tensor& own, const GroupHandle& group) {
  auto parts = all_gather(own.detach(), group).unbind();
  parts[static_cast<size_t>(group.rank())] = own;
  return torch::cat(parts);
}

class GradientScale : protected test::EveryWireAndSize {};
TEST_CASE_METHOD(GradientScale, "GradientScale: of all_gather and DistributedDataParallel it is one process's") {
  const auto expected = gradient_of_one_process(size());
  run([&](const GroupHandle& group) {
    const int64_t first = group.rank() * kRowsOfRank;
    const auto of_own_rows = [&](const torch::Tensor& own) {
      return row_losses(own, first, functional::all_gather(own, group));
    };
    const auto of_all_rows = [&](const torch::Tensor& own) {
      const auto all = functional::all_gather(own, group);
      return row_losses(all, 0, all);
    };
    const double count = group.size();
    expect_gradient(gradient_of_rank(group, [&](const auto& own) { return of_own_rows(own).mean(); }), expected);
    expect_gradient(gradient_of_rank(group, [&](const auto& own) { return of_all_rows(own).mean(); }), expected);
    expect_gradient(gradient_of_rank(group, [&](const auto& own) { return of_own_rows(own).mean() * count; }),
                    expected * count);
    // Of the sum over all rows, a Nth.
    expect_gradient(gradient_of_rank(group, [&](const auto& own) { return of_own_rows(own).sum(); }),
                    expected * kRowsOfRank * count / count);
  });
}

TEST_CASE_METHOD(GradientScale, "GradientScale: without the gradient of all_gather it is less, or another gradient") {
  const auto expected = gradient_of_one_process(size());
  run([&](const GroupHandle& group) {
    const auto whole = gradient_of_rank(group, [&](const auto& own) {
      const auto all = gather_with_own_part(own, group);
      return row_losses(all, 0, all).mean();
    });
    expect_gradient(whole * group.size(), expected);
    if (group.size() == 1) return;
    const auto of_own_rows = gradient_of_rank(group, [&](const auto& own) {
      return row_losses(own, group.rank() * kRowsOfRank, gather_with_own_part(own, group)).mean();
    });
    const double cosine = torch::cosine_similarity(of_own_rows, expected, 0).item<double>();
    RANK_CHECK(cosine < 0.99);
  });
}

class UnusedOutput : protected test::EveryWire {
 protected:
  static constexpr int kSize = 3;
  static constexpr int kWithout = 1;
};
TEST_CASE_METHOD(UnusedOutput, "UnusedOutput: the others name the rank and the number of the forward") {
  std::atomic<int> failed{0};
  std::atomic<bool> give_up{false};
  run_ranks(kSize,
            [&](const GroupHandle& group) {
              const auto own = numbers({2, 4}, group.rank()).requires_grad_();
              barrier(group);
              const auto all = functional::all_gather(own, group, 0, {.timeout = std::chrono::milliseconds(500)});
              if (group.rank() == kWithout) {
                own.square().sum().backward();
                while (failed < kSize - 1 && !give_up) std::this_thread::yield();
                return;
              }
              RANK_CHECK_THAT(error_of<std::runtime_error>([&] { all.square().sum().backward(); }),
                              ContainsSubstring("reduce_scatter (number 2, gradient of number 1)") &&
                                  ContainsSubstring("did not take part in it: rank 1"));
              ++failed;
            },
            {.wire = wire_});
  give_up = true;
  CHECK(failed == kSize - 1);
}

}  // namespace
}  // namespace ddp

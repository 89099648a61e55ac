// SyncBatchNorm's backward: what it computes, of which graphs, and what it sends.
#include <torch/autograd.h>

#include <cstdint>
#include <tuple>
#include <vector>

#include <ddprun/comm/collectives.h>
#include <ddprun/syncbn/sync_batch_norm.h>

#include "tests/support/catch.h"
#include "tests/support/rank_checks.h"
#include "tests/support/ranks.h"
#include "tests/syncbn/numbers.h"

namespace ddp {
namespace {

using Catch::Matchers::WithinAbs;
using test::error;
using test::numbers;
using test::run_ranks;
using torch::Tensor;

TEST_CASE("SyncBatchNorm: gradients equal finite differences through two ranks") {
  run_ranks(2, [](const GroupHandle& group) {
    // A loss whose gradient by this rank's input runs through the other rank's output.
    auto norm = test::placed(SyncBatchNorm(SyncBatchNormOptions(3, group).track_running_stats(false)));
    norm->to(torch::kDouble);
    const auto rank = static_cast<uint64_t>(group.rank());
    const Tensor x = numbers({group.rank() == 0 ? 3 : 2, 3, 2, 2}, rank + 1);
    const Tensor weights = numbers(x.sizes(), rank + 10);
    const auto loss_of_all = [&](const Tensor& input) {
      const torch::NoGradGuard no_grad;
      Tensor loss = (norm(input).tanh() * weights).sum();
      all_reduce(loss, group);
      return loss.item<double>();
    };
    Tensor leaf = x.clone().requires_grad_();
    (norm(leaf).tanh() * weights).sum().backward();

    constexpr double kStep = 1e-6;
    for (int owner = 0; owner < 2; ++owner) {
      for (int64_t i = 0; i < (owner == 0 ? 36 : 24); ++i) {
        const auto moved = [&](double by) {
          Tensor input = x.clone();
          if (owner == group.rank()) input.view({-1})[i] += by;
          return input;
        };
        const double difference = (loss_of_all(moved(kStep)) - loss_of_all(moved(-kStep))) / (2 * kStep);
        if (owner == group.rank()) {
          RANK_CHECK_THAT(leaf.grad().view({-1})[i].item<double>(), WithinAbs(difference, 1e-7));
        }
      }
    }
    // The parameters' gradients are this rank's own part.
    for (Tensor* parameter : {&norm->weight, &norm->bias}) {
      for (int64_t i = 0; i < 3; ++i) {
        const torch::NoGradGuard no_grad;
        const auto loss_at = [&](double by) {
          parameter->index({i}) += by;
          const double loss = (norm(x).tanh() * weights).sum().item<double>();
          parameter->index({i}) -= by;
          return loss;
        };
        const double difference = (loss_at(kStep) - loss_at(-kStep)) / (2 * kStep);
        RANK_CHECK_THAT(parameter->grad()[i].item<double>(), WithinAbs(difference, 1e-7));
      }
    }
  });
}

TEST_CASE("SyncBatchNorm: an input that needs no gradient costs no collective in backward") {
  run_ranks(2, [](const GroupHandle& group) {
    auto norm = test::placed(SyncBatchNorm(4, group));
    norm(numbers({3, 4}, 0, torch::kFloat)).sum().backward();
    RANK_CHECK(norm->bias.grad().defined());
    const Tensor x = numbers({3, 4}, 0, torch::kFloat);
    const Tensor y = norm(x);
    if (group.rank() == 0) y.sum().backward();  // alone: it would wait for the other rank
  });
}

TEST_CASE("SyncBatchNorm: a graph can be used twice and in part") {
  run_ranks(2, [](const GroupHandle& group) {
    auto norm = test::placed(SyncBatchNorm(4, group));
    norm->to(torch::kDouble);
    Tensor x = numbers({3, 4}, static_cast<uint64_t>(group.rank())).requires_grad_();
    const Tensor loss = norm(x).square().sum();
    const auto once = torch::autograd::grad({loss}, {x}, {}, /*retain_graph=*/true)[0];
    const auto again = torch::autograd::grad({loss}, {x, norm->weight});
    RANK_CHECK(torch::equal(once, again[0]));
    const auto weight_only = torch::autograd::grad({norm(x).square().sum()}, {norm->weight});
    RANK_CHECK(torch::equal(weight_only[0], again[1]));
  });
}

TEST_CASE("SyncBatchNorm: expanded and strided gradients are taken") {
  run_ranks(2, [](const GroupHandle& group) {
    auto norm = test::placed(SyncBatchNorm(4, group));
    norm->to(torch::kDouble);
    Tensor leaf = numbers({5, 3, 4}, static_cast<uint64_t>(group.rank())).requires_grad_();
    const Tensor view = leaf.permute({1, 2, 0});                 // (3, 4, 5), not contiguous
    norm(view).sum().backward();                                 // an expanded gradient
    RANK_CHECK(leaf.grad().abs().max().item<double>() < 1e-12);  // of a sum of normalised values
  });
}

}  // namespace
}  // namespace ddp

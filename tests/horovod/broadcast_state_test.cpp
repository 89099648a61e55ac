// Equal starting points: parameters of every kind, and the state of every kind of optimizer.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <ddprun/comm/collectives.h>

#include "ddprun/horovod/horovod.h"
#include "tests/support/catch.h"
#include "tests/support/errors.h"
#include "tests/support/every_wire.h"
#include "tests/support/placement.h"
#include "tests/support/rank_checks.h"
#include "tests/support/tensors.h"

namespace ddp::horovod {
namespace {

using Catch::Matchers::ContainsSubstring;
using test::EqualsTensor;
using test::error_of;
using test::here;

class BroadcastState : protected test::EveryWireAndSize {};

NamedTensors tensors_of(int rank) {
  const at::Tensor numbers = here(at::arange(12, at::kFloat)).view({3, 4}) + rank;
  return {{"matrix", numbers},
          {"transposed", numbers.clone().t()},
          {"leaf", numbers.clone().requires_grad_()},
          {"scalar", here(at::full({}, rank, at::kLong))},
          {"nothing", here(at::zeros({0, 2}))},
          {"flag", here(at::full({2}, rank % 2 == 0, at::kBool))},
          {"half", here(at::full({3}, rank + 0.5, at::kHalf))},
          {"slice", (here(at::arange(20, at::kDouble)) * (rank + 1)).slice(0, 1, 20, 3)}};
}

TEST_CASE_METHOD(BroadcastState, "BroadcastState: parameters of every kind become the root's, whichever rank that is") {
  run([](const GroupHandle& group) {
    for (int root = 0; root < group.size(); ++root) {
      const NamedTensors mine = tensors_of(group.rank());
      const NamedTensors expected = tensors_of(root);
      broadcast_parameters(mine, root, group);
      for (size_t i = 0; i < mine.size(); ++i) {
        RANK_INFO(mine[i].first);
        RANK_CHECK_THAT(mine[i].second.detach(), EqualsTensor(expected[i].second.detach()));
        RANK_CHECK(mine[i].second.strides() == expected[i].second.strides());
        RANK_CHECK(mine[i].second.requires_grad() == expected[i].second.requires_grad());
      }
    }
    broadcast_parameters(NamedTensors{}, 0, group);
  });
}

TEST_CASE_METHOD(BroadcastState,
                 "BroadcastState: lists that differ are named on every rank and nothing is overwritten") {
  if (size() == 1) return;
  const at::Tensor tensor = here(at::ones({2}));
  const std::vector<NamedTensors> others{{},
                                         {{"other", here(at::ones({2}))}},
                                         {{"weight", here(at::ones({3}))}},
                                         {{"weight", here(at::ones({2}, at::kDouble))}},
                                         {{"weight", here(at::ones({2}))}, {"bias", here(at::ones({1}))}}};
  for (const NamedTensors& other : others) {
    run([&](const GroupHandle& group) {
      const bool is_other = group.rank() == group.size() - 1;
      const NamedTensors mine{{"weight", here(at::full({2}, group.rank() + 1.F))}};
      RANK_CHECK_THAT(error_of<std::runtime_error>([&] { broadcast_parameters(is_other ? other : mine, 0, group); }),
                      ContainsSubstring("broadcast_parameters: the ranks' parameters differ"));
      RANK_CHECK_THAT(mine[0].second, EqualsTensor(at::full({2}, group.rank() + 1.F)));
      broadcast_parameters(mine, 0, group);
      RANK_CHECK_THAT(mine[0].second, EqualsTensor(at::ones({2})));
    });
  }
}

TEST_CASE_METHOD(BroadcastState, "BroadcastState: what is not a tensor and who is not a rank is refused") {
  run([](const GroupHandle& group) {
    RANK_CHECK_THAT(error_of<std::invalid_argument>([&] {
                      broadcast_parameters({{"weight", at::Tensor()}}, 0, group);
                    }),
                    ContainsSubstring("broadcast_parameters: 'weight' is undefined"));
    if (!test::is_on_devices()) {  // NCCL takes bytes of any dtype
      RANK_CHECK_THAT(
          error_of<std::invalid_argument>([&] {
            broadcast_parameters({{"counts", at::ones({1}, at::kShort)}}, 0, group);
          }),
          ContainsSubstring("broadcast_parameters: 'counts': ") && ContainsSubstring("do not support Short"));
    }
    RANK_CHECK_THAT(error_of<std::invalid_argument>([&] {
                      broadcast_parameters({{"weight", here(at::ones({1}))}}, group.size(), group);
                    }),
                    ContainsSubstring("is not a rank"));
    std::vector<at::Tensor> weights{here(at::ones({2})).requires_grad_()};
    torch::optim::LBFGS lbfgs(weights);
    RANK_CHECK_THAT(error_of<std::invalid_argument>([&] { broadcast_optimizer_state(lbfgs, 0, group); }),
                    ContainsSubstring("cannot broadcast the state of LBFGS"));
    torch::optim::SGD sgd(weights, torch::optim::SGDOptions(0.1));
    RANK_CHECK_THAT(error_of<std::invalid_argument>([&] { broadcast_optimizer_state(sgd, -1, group); }),
                    ContainsSubstring("is not a rank"));
  });
}

using Weights = std::vector<at::Tensor>;
using Make = std::function<std::unique_ptr<torch::optim::Optimizer>(const Weights&, double lr)>;

template <typename Optimizer, typename Options>
Make maker(const std::function<void(Options&)>& set) {
  return [set](const Weights& weights, double lr) {
    Options options(lr);
    set(options);
    return std::make_unique<Optimizer>(weights, options);
  };
}

TEST_CASE_METHOD(BroadcastState, "BroadcastState: every optimizer goes on as the root's, whatever it has done before") {
  namespace optim = torch::optim;
  const std::vector<Make> makers{
      maker<optim::SGD, optim::SGDOptions>([](auto& options) { options.momentum(0.9).nesterov(true); }),
      maker<optim::SGD, optim::SGDOptions>([](auto&) {}),
      maker<optim::Adam, optim::AdamOptions>([](auto& options) { options.amsgrad(true); }),
      maker<optim::AdamW, optim::AdamWOptions>([](auto&) {}),
      maker<optim::Adagrad, optim::AdagradOptions>([](auto&) {}),
      maker<optim::RMSprop, optim::RMSpropOptions>([](auto& options) { options.momentum(0.5).centered(true); })};
  const auto step = [](torch::optim::Optimizer& optimizer, const Weights& weights, float gradient) {
    for (const at::Tensor& weight : weights) weight.mutable_grad() = here(at::full(weight.sizes(), gradient));
    optimizer.step();
  };
  run([&](const GroupHandle& group) {
    const int root = group.size() - 1;
    for (size_t i = 0; i < makers.size(); ++i) {
      RANK_INFO("optimizer " << i);
      const Weights weights{here(at::ones({2, 2})).requires_grad_(), here(at::ones({})).requires_grad_()};
      const auto optimizer = makers[i](weights, group.rank() == root ? 0.25 : 0.5);
      // The root has made steps; some of the others have made more, rank 0 of several none.
      for (int k = 0; k < group.rank() + (group.size() == 1 ? 1 : 0); ++k) step(*optimizer, weights, k + 1.F);
      for (const at::Tensor& weight : weights) weight.detach().fill_(1);
      broadcast_optimizer_state(*optimizer, root, group);
      step(*optimizer, weights, 2);
      step(*optimizer, weights, 3);
      for (const at::Tensor& weight : weights) {
        const at::Tensor all = all_gather(weight.detach(), group);
        for (int rank = 0; rank < group.size(); ++rank) RANK_CHECK_THAT(all[rank], EqualsTensor(all[0]));
        RANK_CHECK(weight.detach().ne(1).all().item<bool>());
      }
    }
  });
}

}  // namespace
}  // namespace ddp::horovod

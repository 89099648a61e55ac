// fully_shard(): what is refused, and what follows a failure.
#include <ATen/ops/ones.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <torch/headeronly/version.h>
#include <torch/nn/modules/conv.h>
#include <torch/serialize.h>

#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "ddprun/checkpoint/checkpoint_manager.h"
#include "ddprun/comm/collectives.h"
#include "ddprun/ddp/distributed_data_parallel.h"
#include "ddprun/fsdp/fully_shard.h"
#include "ddprun/horovod/horovod.h"
#include "ddprun/optim/clip_grad.h"
#include "ddprun/optim/more_optimizers.h"
#include "ddprun/optim/optimizers.h"
#include "ddprun/optim/zero_redundancy_optimizer.h"
#include "ddprun/recompute/recompute.h"
#include "tests/fsdp/nets.h"
#include "tests/support/errors.h"
#include "tests/support/rank_checks.h"
#include "tests/support/ranks.h"
#include "tests/support/temporary_folder.h"

namespace ddp {
namespace {

using Catch::Matchers::ContainsSubstring;
using test::Block;
using test::error_of;
using test::Net;
using test::placed;
using test::run_ranks;
using test::words;

std::string refusal(const GroupHandle& group, const FullyShardOptions& options) {
  return error_of<std::invalid_argument>([&] { fully_shard(placed(Net()), group, options); });
}

TEST_CASE("fully_shard: selectors that fit no module, or one twice, are refused") {
  run_ranks(2, [](const GroupHandle& group) {
    RANK_CHECK_THAT(refusal(group, {.units = {children({"third"})}}), ContainsSubstring("no module 'third'"));
    RANK_CHECK_THAT(refusal(group, {.units = {each<torch::nn::Conv2d>()}}), ContainsSubstring("selects no module"));
    RANK_CHECK_THAT(refusal(group, {.units = {each<Block>(), children({"first"})}}),
                    ContainsSubstring("'first' is selected twice"));
    RANK_CHECK_THAT(refusal(group, {.units = {children({"first"}), together({"first.up", "head"})}}),
                    ContainsSubstring("cannot be one unit"));
  });
}

struct HolderImpl : torch::nn::Module {
  explicit HolderImpl(const at::Tensor& parameter) { weight = register_parameter("weight", parameter); }
  at::Tensor forward(const at::Tensor& x) { return x * weight; }
  at::Tensor weight;
};
TORCH_MODULE(Holder);

struct PairImpl : torch::nn::Module {
  explicit PairImpl(const at::Tensor& parameter) {
    register_module("a", Holder(parameter));
    register_module("b", Holder(parameter));
  }
  at::Tensor forward(const at::Tensor& x) { return x; }
};
TORCH_MODULE(Pair);

TEST_CASE("fully_shard: parameters that cannot be divided are refused by name") {
  run_ranks(2, [](const GroupHandle& group) {
    const auto refused = [&](auto model, const FullyShardOptions& options = {}) {
      return error_of<std::invalid_argument>([&] { fully_shard(placed(model), group, options); });
    };
    RANK_CHECK_THAT(refused(Holder(at::ones({}))), ContainsSubstring("the parameter weight has no dimension"));
    RANK_CHECK_THAT(refused(Holder(at::ones({2, 3}).t())), ContainsSubstring("the parameter weight is not contiguous"));
    RANK_CHECK_THAT(refused(Pair(at::ones({4})), {.units = {children({"a"})}}),
                    ContainsSubstring("b.weight of unit the root is also a.weight of unit a") ||
                        ContainsSubstring("Put the modules that share it into one unit, by together()"));
    RANK_CHECK_THAT(error_of<std::invalid_argument>([&] { fully_shard(Net(nullptr), group); }),
                    ContainsSubstring("empty"));
  });
}

TEST_CASE("fully_shard: a model is wrapped once") {
  run_ranks(2, [](const GroupHandle& group) {
    Net net = placed(Net());
    auto model = fully_shard(net, group);
    RANK_CHECK_THAT(error_of<std::invalid_argument>([&] { fully_shard(net, group); }),
                    ContainsSubstring("is sharded already"));
    Net other = placed(Net());
    const DistributedDataParallel<Net> ddp(other, group);
    RANK_CHECK_THAT(error_of<std::logic_error>([&] { fully_shard(other, group); }),
                    ContainsSubstring("already wrapped in DistributedDataParallel"));
  });
}

TEST_CASE("fully_shard: ranks whose models differ are named") {
  run_ranks(3, [](const GroupHandle& group) {
    FullyShardOptions options;
    if (group.rank() == 2) options.units = {children({"first"})};
    RANK_CHECK_THAT(error_of<std::runtime_error>([&] { fully_shard(placed(Net()), group, options); }),
                    ContainsSubstring("the units of fully_shard() differ") && ContainsSubstring("rank 2"));
  });
}

TEST_CASE("fully_shard: a use outside of a forward is refused by name") {
  run_ranks(2, [](const GroupHandle& group) {
    Net net = placed(Net());
    auto model = fully_shard(net, group);
    const std::string text = error_of<std::logic_error>([&] { net->head->weight.sum(); });
    RANK_CHECK_THAT(text, ContainsSubstring("sum") && ContainsSubstring("head.weight") &&
                              ContainsSubstring("outside of the model's forward"));
    // What needs no values is allowed.
    RANK_CHECK(net->head->weight.t().size(0) == 3);
    RANK_CHECK_THAT(error_of<std::logic_error>([&] {
                      net->first(test::here(at::ones({1, 5})));
                    }),
                    ContainsSubstring("first.up"));
  });
}

struct WritingImpl : torch::nn::Module {
  WritingImpl() { weight = register_parameter("weight", at::ones({4})); }
  at::Tensor forward(const at::Tensor& x) {
    const at::NoGradGuard no_grad;
    weight.mul_(0.5);
    return x * weight;
  }
  at::Tensor weight;
};
TORCH_MODULE(Writing);

TEST_CASE("fully_shard: a forward that changes a parameter is refused") {
  run_ranks(2, [](const GroupHandle& group) {
    auto model = fully_shard(placed(Writing()), group);
    RANK_CHECK_THAT(error_of<std::logic_error>([&] { model(test::here(at::ones({4}))); }),
                    ContainsSubstring("mul_ changes the parameter weight in place"));
  });
}

TEST_CASE("fully_shard: a step between forward and backward is refused") {
  run_ranks(2, [](const GroupHandle& group) {
    auto model = fully_shard(placed(Net()), group, {.units = {each<Block>()}});
    const at::Tensor loss = model(words(group.rank(), 0)).sum();
    {
      const at::NoGradGuard no_grad;
      for (at::Tensor& shard : model->parameters()) shard.mul_(0.5);
    }
    RANK_CHECK_THAT(error_of<std::runtime_error>([&] { loss.backward(); }),
                    ContainsSubstring("was changed between the forward and its backward"));
    RANK_CHECK_THAT(error_of<std::runtime_error>([&] { model(words(0, 0)); }), ContainsSubstring("reset_iteration()"));
    model->reset_iteration();
    model(words(group.rank(), 0)).sum().backward();
    RANK_CHECK(model->parameters().front().grad().defined());
  });
}

struct FailingImpl : torch::nn::Module {
  FailingImpl() : net(register_module("net", Net())) {}
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor y = net(x);
    if (fails) throw std::runtime_error("an error of the forward");
    return y;
  }
  Net net;
  bool fails = false;
};
TORCH_MODULE(Failing);

TEST_CASE("fully_shard: after a forward that throws the next one works") {
  run_ranks(2, [](const GroupHandle& group) {
    Failing failing = placed(Failing());
    auto model = fully_shard(failing, group, {.units = {each<Block>()}});
    failing->fails = true;
    RANK_CHECK(error_of<std::runtime_error>([&] { model(words(0, 0)); }) == "an error of the forward");
    for (const at::Tensor& parameter : failing->parameters()) RANK_CHECK(!test::has_memory(parameter));
    failing->fails = false;
    model(words(group.rank(), 0)).sum().backward();
    RANK_CHECK(model->parameters().front().grad().defined());
  });
}

TEST_CASE("fully_shard: a module outlives its wrapper, without values") {
  run_ranks(2, [](const GroupHandle& group) {
    Net net = placed(Net());
    { const auto model = fully_shard(net, group); }
    RANK_CHECK_THAT(error_of<std::logic_error>([&] { net(words(0, 0)); }), ContainsSubstring("wrapper was destroyed"));
  });
}

TEST_CASE("fully_shard: moving, cloning, wrong names and shapes are refused") {
  run_ranks(2, [](const GroupHandle& group) {
    auto model = fully_shard(placed(Net()), group);
    RANK_CHECK_THAT(error_of<std::logic_error>([&] { model->to(at::kDouble); }), ContainsSubstring("before"));
    RANK_CHECK_THAT(error_of<std::logic_error>([&] { model->clone(); }), ContainsSubstring("fully_shard()"));
    RANK_CHECK_THAT(error_of<std::invalid_argument>([&] { model->full_parameter("x"); }),
                    ContainsSubstring("no parameter 'x'"));
    RANK_CHECK_THAT(error_of<std::invalid_argument>([&] { model->set_full_parameter("head.bias", at::ones({3})); }),
                    ContainsSubstring("[2]") && ContainsSubstring("[3]"));
    RANK_CHECK_THAT(error_of<std::invalid_argument>([&] { model->clip_grad_norm_(1, 0); }),
                    ContainsSubstring("above 0"));
    RANK_CHECK_THAT(error_of<std::logic_error>([&] {
                      checkpoint([&](const at::Tensor& x) { return model(x); }, words(0, 0)).sum().backward();
                    }),
                    ContainsSubstring("Call checkpoint() inside the model"));
  });
}

TEST_CASE("fully_shard: what needs whole parameters refuses shards") {
  run_ranks(2, [](const GroupHandle& group) {
    auto model = fully_shard(placed(Net()), group);
    const std::vector<at::Tensor> shards = model->parameters();
    const auto refused = [&](const auto& use) { return error_of<std::invalid_argument>(use); };
    RANK_CHECK_THAT(refused([&] { optim::clip_grad_norm_(shards, 1); }),
                    ContainsSubstring("would treat a shard of fully_shard() as the whole parameter") &&
                        ContainsSubstring("Call clip_grad_norm_() of what fully_shard() has returned"));
    RANK_CHECK_THAT(refused([&] { optim::Lamb optimizer(shards); }), ContainsSubstring("Lamb would treat"));
    RANK_CHECK_THAT(refused([&] { optim::Adafactor optimizer(shards); }), ContainsSubstring("Adafactor would treat"));
    RANK_CHECK_THAT(refused([&] { optim::Muon optimizer({shards.front()}); }), ContainsSubstring("Muon would treat"));
    RANK_CHECK_THAT(
        refused([&] { ZeroRedundancyOptimizer<optim::SGD> optimizer(shards, optim::SGDOptions(0.1), group); }),
        ContainsSubstring("ZeroRedundancyOptimizer would treat"));
    optim::SGD sgd(shards, optim::SGDOptions(0.1));
    RANK_CHECK_THAT(refused([&] { horovod::DistributedOptimizer optimizer(sgd, group); }),
                    ContainsSubstring("DistributedOptimizer would treat"));
    RANK_CHECK_THAT(refused([&] { fully_shard(model.ptr(), group); }),
                    ContainsSubstring("Call it only once for each model"));
    RANK_CHECK_THAT(error_of<std::exception>([&] { DistributedDataParallel(model.ptr(), group); }),
                    ContainsSubstring("DistributedDataParallel"));
  });
}

TEST_CASE("fully_shard: rank 0 alone does not save shards") {
  const test::TemporaryFolder folder;
  run_ranks(2, [&](const GroupHandle& group) {
    auto model = fully_shard(placed(Net()), group);
    CheckpointManager checkpoints(folder.path(), group, {.sharded = false});
    RANK_CHECK_THAT(error_of<std::exception>([&] { checkpoints.save(1, {.model = model}); }),
                    ContainsSubstring("a checkpoint that rank 0 writes would treat a shard"));
  });
}

#if TORCH_VERSION_MINOR >= 15
TEST_CASE("fully_shard: the module's parameters are not saved as zeros") {
  const test::TemporaryFolder folder;
  run_ranks(2, [&](const GroupHandle& group) {
    Net net = placed(Net());
    auto model = fully_shard(net, group);
    RANK_CHECK_THAT(error_of<std::exception>([&] { torch::save(net, folder.path() / std::to_string(group.rank())); }),
                    ContainsSubstring("full_parameter()"));
  });
}
#endif

struct BranchesImpl : torch::nn::Module {
  BranchesImpl() : a(register_module("a", Block(3, 3))), b(register_module("b", Block(3, 3))) {}
  at::Tensor forward(const at::Tensor& x) {
    if (order_is_reversed) return a(b(x));
    if (!in_threads) return b(a(x));
    std::string text;
    std::thread([&] { text = error_of<std::logic_error>([&] { a(x); }); }).join();
    throw std::runtime_error(text);
  }
  Block a, b;
  bool in_threads = false;
  bool order_is_reversed = false;
};
TORCH_MODULE(Branches);

TEST_CASE("fully_shard: another thread in a forward is refused") {
  run_ranks(2, [](const GroupHandle& group) {
    Branches net = placed(Branches());
    net->in_threads = true;
    auto model = fully_shard(net, group, {.units = {each<Block>()}});
    RANK_CHECK_THAT(error_of<std::runtime_error>([&] {
                      model(test::here(at::ones({1, 3})));
                    }),
                    ContainsSubstring("in a thread other than that of the model's forward"));
  });
}

TEST_CASE("fully_shard: units of equal size in another order are not taken for one another", "[failures]") {
  for (const test::Wire wire : {test::Wire::kShm, test::Wire::kGloo}) {
    run_ranks(2,
              [](const GroupHandle& group) {
                Branches net = placed(Branches());
                net->order_is_reversed = group.rank() == 1;
                auto model = fully_shard(net, group, {.units = {each<Block>()}});
                RANK_CHECK_THAT(error_of<std::runtime_error>([&] {
                                  model(test::here(at::ones({1, 3})));
                                }),
                                ContainsSubstring("all_gather"));
              },
              {.wire = wire, .timeout = std::chrono::seconds(5)});
  }
}

TEST_CASE("fully_shard: a rank whose gradients differ is named", "[failures]") {
  run_ranks(3,
            [](const GroupHandle& group) {
              auto model = fully_shard(placed(Net()), group, {.units = {each<Block>()}});
              // Rank 1's loss depends on the input of the head only.
              const std::string text = error_of<std::runtime_error>([&] {
                const at::Tensor output = model(words(group.rank(), 0));
                if (group.rank() != 1) output.sum().backward();
                barrier(group);
              });
              RANK_CHECK_THAT(text, ContainsSubstring("rank 1"));
            },
            {.wire = test::wires().front(), .timeout = std::chrono::seconds(5)});
}

}  // namespace
}  // namespace ddp

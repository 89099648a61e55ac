// For fine-tuning: parts of a checkpoint, and layers that are frozen.
#include <torch/nn/modules/linear.h>

#include <memory>

#include <ddprun/checkpoint/checkpoint_manager.h>

#include "tests/checkpoint/manager_runs.h"
#include "tests/checkpoint/nets.h"
#include "tests/support/catch.h"
#include "tests/support/matchers.h"
#include "tests/support/rank_checks.h"
#include "tests/support/ranks.h"
#include "tests/support/temporary_folder.h"

namespace ddp {
namespace {

using Catch::Matchers::Contains;
using Catch::Matchers::ContainsSubstring;
using test::copy_of;
using test::Counter;
using test::ElementsAre;
using test::Net;
using test::single_process;
using test::TemporaryFolder;
using test::Training;

TEST_CASE("CheckpointManager: partial and lenient loads list what they left out") {
  const TemporaryFolder folder;
  CheckpointManager manager(folder / "run", single_process());
  Training run;
  manager.save(1, {.model = run.net});

  Net partly;
  const auto before = copy_of(*partly);
  manager.load(1, {.model = partly}, {.only = {"fc1", "bn.running_*"}});
  const auto after = copy_of(*partly);
  const auto saved = copy_of(*run.net);
  CHECK(after.at("fc1.weight").equal(saved.at("fc1.weight")));
  CHECK(after.at("fc2.weight").equal(before.at("fc2.weight")));

  Net other_head(5);
  CHECK_THROWS_WITH(manager.load(1, {.model = other_head}, {.strict = false}),
                    ContainsSubstring("'fc2.weight' is Float [5, 8] in the model"));
  manager.load(1, {.model = other_head}, {.skip = {"fc2"}});
  CHECK(copy_of(*other_head).at("fc1.bias").equal(saved.at("fc1.bias")));
  CHECK_THROWS_WITH(manager.load(1, {.model = other_head}, {.only = {"nothing"}}),
                    ContainsSubstring("none of the names to load"));

  torch::nn::Linear small(4, 8);
  struct Holder : torch::nn::Module {
    explicit Holder(const torch::nn::Linear& linear) {
      register_module("fc1", linear);
      register_module("extra", torch::nn::Linear(2, 2));
    }
  } holder(small);
  const auto loaded = manager.load(1, {.model = holder, .scaler = *std::make_unique<Counter>()}, {.strict = false});
  CHECK_THAT(loaded.missing, ElementsAre("extra.bias", "extra.weight", "scaler.state"));
  CHECK_THAT(loaded.unexpected, Contains("fc2.weight"));
  CHECK_THROWS_WITH(
      [&] {
        Counter scaler;
        manager.load(1, {.model = run.net, .scaler = scaler});
      }(),
      ContainsSubstring("holds no scaler.state"));
}

TEST_CASE("CheckpointManager: a checkpoint without random streams leaves them as they are") {
  const test::TemporaryFolder folder;
  test::Training run;
  CheckpointManager(folder / "run", test::single_process()).save(1, {.model = run.net, .rng = false});
  for (const int ranks : {1, 3}) {
    test::Said notices;
    test::run_ranks(ranks, [&](const GroupHandle& group) {
      test::Training other;
      CheckpointManager manager(folder / "run", group, {.notify = [&](const std::string& text) { notices.add(text); }});
      RANK_CHECK_FALSE(manager.load(1, {.model = other.net}).rng_restored);
    });
    CHECK_THAT(notices.all(), test::ElementsAre(Catch::Matchers::ContainsSubstring("holds no random-number states")));
  }
}

TEST_CASE("CheckpointManager: frozen layers take no gradient") {
  Net net;
  CHECK_THAT(freeze_layers(net, {"fc1", "*.bias"}), ElementsAre("fc1.weight", "fc1.bias", "bn.bias", "fc2.bias"));
  CHECK_FALSE(net->fc1->weight.requires_grad());
  CHECK(net->fc2->weight.requires_grad());
  CHECK_THROWS_WITH(freeze_layers(net, {"fc9"}), ContainsSubstring("no parameter of the model matches 'fc9'"));
}

TEST_CASE("CheckpointManager: all layers but the named ones can be frozen, and the rest is the optimizer's") {
  Net net;
  CHECK_THROWS_WITH(freeze_all_but(net, {"fc9"}), ContainsSubstring("no parameter of the model matches 'fc9'"));
  CHECK(trainable_parameters(net).size() == net->parameters().size());
  freeze_all_but(net, {"fc2"});
  const auto trained = trainable_parameters(net);
  REQUIRE(trained.size() == 2);
  CHECK(trained[0].is_same(net->fc2->weight));
  CHECK(trained[1].is_same(net->fc2->bias));
}

}  // namespace
}  // namespace ddp

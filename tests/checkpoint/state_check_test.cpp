// What a save would refuse is refused before the training, by name, on all ranks alike.
#include <c10/core/InferenceMode.h>
#include <torch/optim/adam.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>
#include <torch/serialize.h>

#include <filesystem>
#include <functional>
#include <limits>
#include <string>

#include <ddprun/checkpoint/checkpoint.h>
#include <ddprun/checkpoint/checkpoint_manager.h>
#include <ddprun/comm/collectives.h>
#include <ddprun/optim/optimizers.h>
#include <ddprun/optim/zero_redundancy_optimizer.h>

#include "tests/checkpoint/manager_runs.h"
#include "tests/checkpoint/nets.h"
#include "tests/checkpoint/single_process.h"
#include "tests/checkpoint/unknown_optimizer.h"
#include "tests/support/catch.h"
#include "tests/support/errors.h"
#include "tests/support/rank_checks.h"
#include "tests/support/ranks.h"
#include "tests/support/temporary_folder.h"

namespace ddp {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;
using test::copy_of;
using test::Counter;
using test::equal;
using test::error_of;
using test::Net;
using test::single_process;
using test::TemporaryFolder;
using test::train;

struct FailingObject {
  bool fails = true;
  std::string save() const {
    if (fails) throw std::runtime_error("the object fails");
    return "";
  }
  void load(const std::string&) {}
};

class StateCheck {
 protected:
  // What check() says, which is what the save would say as well; nothing is written by either.
  std::string refusal(const TrainingState& state) {
    const auto message = error_of<std::runtime_error>([&] { manager_.check(state); });
    const auto beginning = "this state cannot be saved in " + (folder_ / "run").string() + ": ";
    CHECK_THAT(message, StartsWith(beginning));
    CHECK_FALSE(std::filesystem::exists(folder_ / "run"));
    CHECK_THAT(error_of<std::runtime_error>([&] { manager_.save(1, state); }),
               ContainsSubstring(message.substr(beginning.size())));
    CHECK(manager_.list().empty());
    std::filesystem::remove_all(folder_ / "run");
    return message;
  }

  TemporaryFolder folder_;
  CheckpointManager manager_{folder_ / "run", single_process()};
  Net net_, other_;
  torch::optim::SGD sgd_{net_->parameters(), torch::optim::SGDOptions(0.1)};
  torch::optim::SGD strange_{other_->parameters(), torch::optim::SGDOptions(0.1)};
  test::UnknownOptimizer unknown_{net_->parameters()};
};

TEST_CASE_METHOD(StateCheck, "StateCheck: an optimizer whose state has no form is named with its class and a way out") {
  const std::string what =
      " cannot be saved: it is a ddp::test::UnknownOptimizer, but only the states of torch::optim::SGD, Adam";
  const auto way_out = ContainsSubstring(".shared = {{\"optimizer\", optimizer}}");
  auto said = refusal({.model = net_, .optimizer = unknown_});
  CHECK_THAT(said, ContainsSubstring("the optimizer" + what));
  CHECK_THAT(said, way_out);
  said = refusal({.model = net_, .optimizer = sgd_, .optimizers = {{"critic", unknown_}}});
  CHECK_THAT(said, ContainsSubstring("the optimizer 'critic'" + what));
  CHECK_THAT(said, way_out);
}

TEST_CASE_METHOD(StateCheck, "StateCheck: the way out keeps such an optimizer") {
  TensorMap expected;
  for (int64_t run = 0; run < 2; ++run) {
    Net net;
    torch::optim::RMSprop optimizer(net->parameters(), torch::optim::RMSpropOptions(0.01).momentum(0.9));
    const TrainingState state{.model = net, .shared = {{"optimizer", optimizer}}};
    manager_.check(state);
    const auto start = manager_.load_latest(state);
    CHECK(start.has_value() == (run == 1));
    if (run == 0) {
      train(net, optimizer, 0, 2);
      manager_.save(2, state);
      train(net, optimizer, 2, 2);
      expected = copy_of(*net);
    } else {
      train(net, optimizer, 2, 2);
      CHECK(equal(copy_of(*net), expected));
    }
  }
}

TEST_CASE_METHOD(StateCheck, "StateCheck: an optimizer over another model's parameters is named with the parameter") {
  const std::string what =
      " cannot be saved: its parameter 0 of group 0 of shape [8, 4] is not among the model's (9 tensors)";
  const auto way_out = ContainsSubstring(".model = {{\"generator\", generator}, {\"discriminator\", discriminator}}");
  auto said = refusal({.model = net_, .optimizer = strange_});
  CHECK_THAT(said, ContainsSubstring("the optimizer" + what));
  CHECK_THAT(said, way_out);
  said = refusal({.model = net_, .optimizers = {{"d", strange_}}});
  CHECK_THAT(said, ContainsSubstring("the optimizer 'd'" + what));
  CHECK_THAT(said, way_out);
  torch::optim::SGD late(net_->parameters(), torch::optim::SGDOptions(0.1));
  late.add_param_group(torch::optim::OptimizerParamGroup({net_->fc1->bias, other_->fc2->bias}));
  CHECK_THAT(refusal({.model = net_, .optimizer = late}), ContainsSubstring("its parameter 1 of group 1 of shape [3]"));
  CHECK_THAT(refusal({.optimizer = sgd_}), ContainsSubstring("the optimizer is saved by its model's names"));
  CHECK_THAT(refusal({.optimizers = {{"g", sgd_}}}),
             ContainsSubstring("the optimizer 'g' is saved by its model's names"));
  manager_.check({.model = {{"a", net_}, {"b", other_}}, .optimizer = sgd_, .optimizers = {{"d", strange_}}});
}

TEST_CASE_METHOD(StateCheck, "StateCheck: groups with options of different classes are refused") {
  sgd_.add_param_group(torch::optim::OptimizerParamGroup({}));
  sgd_.param_groups()[1].set_options(std::make_unique<torch::optim::AdamOptions>(0.1));
  CHECK_THAT(refusal({.model = net_, .optimizer = sgd_}),
             ContainsSubstring("its group 1 has options of another class"));
}

TEST_CASE_METHOD(StateCheck, "StateCheck: names that are not file names are refused") {
  Counter counter;
  for (const std::string name : {"a/b", "../a", "a b", "\xc3\xa4", "a\nb"}) {
    CHECK_THAT(refusal({.model = net_, .optimizers = {{name, sgd_}}}),
               ContainsSubstring("an optimizer has the name") && ContainsSubstring("letters, digits"));
    CHECK_THAT(refusal({.shared = {{name, counter}}}),
               ContainsSubstring("an object of .shared has the name") && ContainsSubstring("letters, digits"));
  }
  CHECK_THAT(refusal({.model = net_, .optimizers = {{"", sgd_}}}), ContainsSubstring("empty name"));
}

TEST_CASE_METHOD(StateCheck, "StateCheck: tensors, values and objects that cannot be stored are named") {
  CHECK_THAT(refusal({.shared = {{"a", Stateful()}}}), ContainsSubstring("the object 'a' of .shared is empty"));
  CHECK_THAT(refusal({.per_rank = {{"a", Stateful()}}}), ContainsSubstring("the object 'a' of .per_rank is empty"));
  FailingObject object;
  CHECK_THAT(refusal({.shared = {{"a", object}}}),
             ContainsSubstring("shared-a.state cannot be saved: the object fails"));
  CHECK_THAT(refusal({.schedule = object}), ContainsSubstring("schedule.state cannot be saved: the object fails"));
  CHECK_THAT(refusal({.per_rank = {{"a", object}}}), ContainsSubstring("the object fails"));
  TrainingState values;
  values.values.set("note", std::string("\xff"));
  CHECK_THAT(refusal(values), ContainsSubstring("UTF-8"));
  net_->register_buffer("wide", torch::zeros({2}, torch::kComplexDouble));
  CHECK_THAT(refusal({.model = net_}), ContainsSubstring("tensor 'wide' cannot be stored in a safetensors file"));
  other_->register_buffer("mask", torch::eye(3).to_sparse());
  CHECK_THAT(refusal({.model = other_}), ContainsSubstring("tensor 'mask' cannot be stored"));
}

TEST_CASE_METHOD(StateCheck, "StateCheck: a sharded save refuses with the words of the check") {
  CheckpointManager sharded(folder_ / "run", single_process(), {.sharded = true});
  net_->register_buffer("mask", torch::eye(3).to_sparse());
  for (const TrainingState& state : {TrainingState{.model = net_},
                                     {.model = other_, .optimizers = {{"a/b", strange_}}},
                                     {.model = other_, .shared = {{"a", Stateful()}}}}) {
    const auto message = error_of<std::runtime_error>([&] { sharded.check(state); });
    const auto reason = message.substr(message.find("run: ") + 5);
    CHECK_THAT(error_of<std::runtime_error>([&] { sharded.save(1, state); }), ContainsSubstring(reason));
  }
}

TEST_CASE_METHOD(StateCheck,
                 "StateCheck: a tensor that nothing can be loaded into is refused by name before it is saved") {
  SECTION("an expanded tensor") {
    net_->register_buffer("tensor", torch::ones({1}).expand({5}));
    CHECK_THAT(refusal({.model = net_}), ContainsSubstring("the model's tensor 'tensor' is an expanded tensor"));
    CHECK_THAT(
        refusal({.shared = {{"net", net_}}}),
        ContainsSubstring("shared-net.state cannot be saved: the model's tensor 'tensor' is an expanded tensor"));
  }
  SECTION("an inference tensor") {
    const c10::InferenceMode inference;
    net_->register_buffer("tensor", torch::ones({5}));
    const c10::InferenceMode training(false);
    CHECK_THAT(refusal({.model = net_}), ContainsSubstring("the model's tensor 'tensor' is an inference tensor"));
  }
  SECTION("expanded in axes of one element") {
    net_->register_buffer("tensor", torch::ones({3}).expand({1, 3}));
    manager_.check({.model = net_});
  }
}

TEST_CASE_METHOD(StateCheck,
                 "StateCheck: a model with a tensor that nothing can be loaded into is left as it is by a load") {
  net_->register_buffer("tensor", torch::ones({5}));
  Counter counter{.count = 3};
  manager_.save(1, {.model = net_, .optimizer = sgd_, .shared = {{"counter", counter}}});
  counter.count = 4;
  save_checkpoint(folder_ / "net.safetensors", {.model = net_}, single_process());
  other_->register_buffer("tensor", torch::ones({1}).expand({5}));
  const auto before = copy_of(*other_);
  const auto objection = ContainsSubstring("does not fit the model: different: 'tensor' is an expanded tensor");
  CHECK_THROWS_WITH(manager_.load_latest({.model = other_, .optimizer = strange_, .shared = {{"counter", counter}}}),
                    objection);
  CHECK_THROWS_WITH(load_weights(folder_ / "net.safetensors", other_, {.strict = false}), objection);
  CHECK(equal(copy_of(*other_), before));
  CHECK(counter.count == 4);
  Stateful shared(other_);
  CHECK_THROWS_WITH(shared.load(Stateful(net_).save()), objection);
  CHECK(equal(copy_of(*other_), before));
}

TEST_CASE("StateCheck: all ranks get one text, whichever of them fails") {
  const TemporaryFolder folder;
  test::Said said;
  test::run_ranks(3, [&](const GroupHandle& group) {
    CheckpointManager manager(folder / "run", group);
    Net net;
    FailingObject object{.fails = group.rank() == 1};
    const TrainingState state{.model = net, .per_rank = {{"own", object}}};
    said.add(error_of<std::runtime_error>([&] { manager.check(state); }));
    object.fails = false;
    manager.check(state);  // and no rank waits for another
  });
  CHECK(said.all().size() == 3);
  REQUIRE(said.different().size() == 1);
  CHECK_THAT(*said.different().begin(), ContainsSubstring("on rank 1: the object fails"));
}

TEST_CASE("StateCheck: an optimizer that is sharded over ranks is one file only when it is consolidated") {
  const TemporaryFolder folder;
  test::run_ranks(2, [&](const GroupHandle& group) {
    CheckpointManager manager(folder / "run", group, {.sharded = false});
    Net net;
    for (const auto& [name, tensor] : module_state(*net)) broadcast(tensor, 0, group);
    ZeroRedundancyOptimizer<optim::SGD> optimizer(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9),
                                                  group);
    const TrainingState state{.model = net, .optimizer = optimizer};
    RANK_CHECK(error_of([&] { manager.check(state); }) == "no error");
    RANK_CHECK_THROWS_AS(manager.save(1, state), std::runtime_error);
    optimizer.consolidate_state();
    RANK_CHECK(error_of([&] { manager.save(1, state); }) == "no error");
  });
}

}  // namespace
}  // namespace ddp

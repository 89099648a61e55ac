// Several nets with an optimizer each in one checkpoint, and nets as objects of it.
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>
#include <torch/serialize.h>

#include <memory>
#include <string>

#include <ddprun/checkpoint/checkpoint.h>
#include <ddprun/checkpoint/checkpoint_manager.h>
#include <ddprun/checkpoint/safetensors.h>
#include <ddprun/checkpoint/tensor_files.h>

#include "tests/checkpoint/nets.h"
#include "tests/checkpoint/single_process.h"
#include "tests/support/catch.h"
#include "tests/support/errors.h"
#include "tests/support/matchers.h"
#include "tests/support/temporary_folder.h"

namespace ddp {
namespace {

using Catch::Matchers::ContainsSubstring;
using test::copy_of;
using test::ElementsAre;
using test::equal;
using test::error_of;
using test::Net;
using test::single_process;
using test::TemporaryFolder;
using test::train;

// Two nets and two optimizers; the second trains both, as some adversarial losses do.
struct Pair {
  Net generator, discriminator;
  torch::optim::Adam first{generator->parameters(), torch::optim::AdamOptions(0.01)};
  torch::optim::SGD second{both(), torch::optim::SGDOptions(0.1).momentum(0.9)};

  std::vector<torch::Tensor> both() const {
    auto all = discriminator->parameters();
    all.push_back(generator->fc1->bias);
    return all;
  }
  TrainingState state() {
    return {.model = {{"generator", generator}, {"discriminator", discriminator}},
            .optimizers = {{"generator", first}, {"discriminator", second}}};
  }
  void steps(int64_t begin, int64_t count) {
    train(generator, first, begin, count);
    train(discriminator, second, begin, count);
  }
};

TEST_CASE("SeveralModels: a resumed pair has the bits of one that never stopped") {
  const TemporaryFolder folder;
  CheckpointManager manager(folder / "run", single_process());
  Pair whole;
  whole.steps(0, 3);
  manager.check(whole.state());
  manager.save(3, whole.state());
  whole.steps(3, 3);
  Pair resumed;
  const auto start = manager.load_latest(resumed.state());
  REQUIRE(start);
  CHECK(start->missing.empty());
  resumed.steps(start->step, 3);
  CHECK(equal(copy_of(*resumed.generator), copy_of(*whole.generator)));
  CHECK(equal(copy_of(*resumed.discriminator), copy_of(*whole.discriminator)));
}

TEST_CASE("SeveralModels: each model's tensors have its name before theirs, and can be loaded alone") {
  const TemporaryFolder folder;
  CheckpointManager manager(folder / "run", single_process());
  Pair pair;
  pair.steps(0, 1);
  manager.save(1, pair.state());
  const auto file = folder / "run/step-00000001/model.safetensors";
  const auto tensors = load_safetensors(file);
  CHECK(tensors.size() == 2 * copy_of(*pair.generator).size());
  CHECK(tensors.contains("generator.fc1.weight"));
  CHECK(tensors.contains("discriminator.bn.num_batches_tracked"));
  const auto groups = SafetensorsFile(folder / "run/step-00000001/optim-discriminator.safetensors").header().metadata;
  CHECK_THAT(groups.at("ddprun.optimizer"),
             ContainsSubstring("\"discriminator.fc1.weight\"") && ContainsSubstring("\"generator.fc1.bias\""));
  Net net;
  load_weights(file, net, {.key = "generator"});
  CHECK(equal(copy_of(*net), copy_of(*pair.generator)));
  UNSCOPED_INFO("a forgotten key is reported");
  CHECK_THROWS_WITH(load_weights(file, net), ContainsSubstring("under the keys 'discriminator', 'generator'"));
  CHECK_THROWS_WITH(manager.load(1, {.model = net}), ContainsSubstring("under the keys 'discriminator', 'generator'"));
  manager.load(1, {.model = net}, {.key = "discriminator"});
  CHECK(equal(copy_of(*net), copy_of(*pair.discriminator)));
}

TEST_CASE("SeveralModels: dicts of several models are read as Python programs save them, wrapped ones too") {
  const TemporaryFolder folder;
  Pair source, target;
  source.steps(0, 1);
  for (const std::string wrapper : {"", "module.", "module._orig_mod."}) {
    TensorMap all;
    for (const auto& [name, tensor] : copy_of(*source.generator)) all.emplace("generator." + wrapper + name, tensor);
    for (const auto& [name, tensor] : copy_of(*source.discriminator)) all.emplace("discriminator." + name, tensor);
    save_pt(folder / "run.pt", all);
    CheckpointManager manager(folder / "run", single_process());
    manager.load(folder / "run.pt", {.model = target.state().model, .rng = false});
    INFO(wrapper);
    CHECK(equal(copy_of(*target.generator), copy_of(*source.generator)));
    CHECK(equal(copy_of(*target.discriminator), copy_of(*source.discriminator)));
  }
}

TEST_CASE("SeveralModels: names are those of entries, each given once") {
  Net net;
  for (const std::string name : {"", "a.b", "a b", "a/b"}) {
    CHECK_THAT(error_of<std::invalid_argument>([&] {
                 ModelRefs({{name, net}});
               }),
               ContainsSubstring("letters, digits"));
  }
  CHECK_THAT(error_of<std::invalid_argument>([&] {
               ModelRefs({{"a", net}, {"a", net}});
             }),
             ContainsSubstring("two models have the name 'a'"));
  CHECK_FALSE(ModelRefs());
  CHECK_FALSE(ModelRefs(std::nullopt));
}

TEST_CASE("SeveralModels: one model is given in whatever form it is held") {
  Net net;
  const Net constant = net;
  auto shared = net.ptr();
  torch::nn::Module& plain = *net;
  const AnyModuleRef reference(net);
  for (const auto& state :
       {TrainingState{.model = net}, TrainingState{.model = constant}, TrainingState{.model = shared},
        TrainingState{.model = plain}, TrainingState{.model = *net}, TrainingState{.model = reference},
        TrainingState{.model = {{"a", net}}}, TrainingState{.model = {{"a", constant}}}}) {
    REQUIRE(state.model.all().size() == 1);
    CHECK(&state.model.all()[0].second.get() == net.get());
  }
}

TEST_CASE("SeveralModels: what holds a module is an object of a checkpoint, on its own device and in its own memory") {
  const TemporaryFolder folder;
  CheckpointManager manager(folder / "run", single_process());
  Pair source, target;
  source.steps(0, 1);
  auto held = source.discriminator.ptr();
  manager.save(1, {.model = source.generator, .shared = {{"discriminator", source.discriminator}, {"held", held}}});
  const auto* memory = target.discriminator->fc1->weight.const_data_ptr();
  Net other;
  const Net constant = other;
  manager.load(1, {.model = target.generator, .shared = {{"discriminator", target.discriminator}, {"held", constant}}});
  CHECK(equal(copy_of(*target.discriminator), copy_of(*source.discriminator)));
  CHECK(equal(copy_of(*other), copy_of(*source.discriminator)));
  CHECK(target.discriminator->fc1->weight.const_data_ptr() == memory);
  UNSCOPED_INFO("another net's state is refused and changes nothing");
  Net small(2);
  const auto before = copy_of(*small);
  CHECK_THROWS_WITH(manager.load(1, {.shared = {{"held", small}}, .rng = false}),
                    ContainsSubstring("does not fit the model"));
  CHECK(equal(copy_of(*small), before));
  CHECK_THROWS_AS(Stateful(*std::make_unique<Net>(nullptr)), std::invalid_argument);
}

TEST_CASE("SeveralModels: what a module saved through a reference to itself is still read by its holder") {
  const TemporaryFolder folder;
  CheckpointManager manager(folder / "run", single_process());
  Net source, target;
  manager.save(1, {.shared = {{"net", *source}}});
  manager.load(1, {.shared = {{"net", target}}});
  CHECK(equal(copy_of(*target), copy_of(*source)));
}

}  // namespace
}  // namespace ddp

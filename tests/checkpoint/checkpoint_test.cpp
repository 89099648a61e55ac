#include "checkpoint/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/safetensors.h"
#include "tests/checkpoint/nets.h"
#include "tests/checkpoint/temporary_folder.h"
#include "tests/support/ranks.h"

namespace ddp {
namespace {

using test::copy_of;
using test::equal;
using test::message_of;
using test::Net;
using test::run_ranks;
using test::train;
using ::testing::AllOf;
using ::testing::HasSubstr;

// As DistributedDataParallel registers it.
struct WrapperImpl : torch::nn::Module {
  explicit WrapperImpl(const Net& net) { register_module("module", net); }
};

struct TiedNetImpl : torch::nn::Module {
  TiedNetImpl() {
    encoder = register_parameter("encoder", torch::randn({3, 3}));
    decoder = register_parameter("decoder", encoder);
  }
  torch::Tensor encoder, decoder;
};

struct UntiedNetImpl : torch::nn::Module {
  UntiedNetImpl() {
    encoder = register_parameter("encoder", torch::randn({3, 3}));
    decoder = register_parameter("decoder", torch::randn({3, 3}));
  }
  torch::Tensor encoder, decoder;
};

GroupHandle single_process() {
  static const auto group = init_process_group({.rank_info = RankInfo{}});
  return group;
}

TEST(Checkpoint, EveryRankGetsBackWhatRankZeroSaved) {
  const test::TemporaryFolder folder;
  const auto path = folder / "new/folders/file.safetensors";
  Net net;
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1));
  train(net, optimizer, 0, 3);
  const auto saved = copy_of(*net);
  run_ranks(2, [&](const GroupHandle& group) {
    Net other;
    save_checkpoint(path, {.model = group.rank() == 0 ? net : other}, group, {{"epoch", "3"}});
    EXPECT_FALSE(equal(copy_of(*other), saved));
    EXPECT_EQ(load_checkpoint(path, {.model = other}, group).metadata, (Metadata{{"epoch", "3"}}));
    EXPECT_TRUE(equal(copy_of(*other), saved));
    EXPECT_TRUE(other->fc1->weight.requires_grad());
    EXPECT_TRUE(other->fc1->weight.is_leaf());
  });
}

TEST(Checkpoint, NamesCarryNoWrapperPrefixAndAreReadWithAndWithoutIt) {
  const test::TemporaryFolder folder;
  Net net;
  WrapperImpl wrapper(net);
  save_checkpoint(folder / "plain", {.model = wrapper}, single_process());
  const auto plain = load_safetensors(folder / "plain");
  EXPECT_EQ(plain.count("fc1.weight"), 1);

  TensorMap prefixed, twice;
  for (const auto& [name, tensor] : plain) prefixed["module." + name] = tensor;
  for (const auto& [name, tensor] : plain) twice["module.module." + name] = tensor;
  save_safetensors(folder / "prefixed", prefixed);
  save_safetensors(folder / "twice", twice);
  for (const char* file : {"plain", "prefixed", "twice"}) {
    Net into;
    load_weights(folder / file, into);
    EXPECT_TRUE(equal(copy_of(*into), plain)) << file;
    Net wrapped;
    WrapperImpl around(wrapped);
    load_checkpoint(folder / file, {.model = around}, single_process());
    EXPECT_TRUE(equal(copy_of(*wrapped), plain)) << file;
  }
}

TEST(Checkpoint, TiedWeightsAreStoredOnceAndLoadIntoTiedAndUntiedModels) {
  const test::TemporaryFolder folder;
  TiedNetImpl net;
  save_checkpoint(folder / "file", {.model = net}, single_process());
  EXPECT_EQ(load_safetensors(folder / "file").size(), 1);
  TiedNetImpl tied;
  load_weights(folder / "file", tied);
  EXPECT_TRUE(tied.encoder.equal(net.encoder));
  EXPECT_TRUE(tied.encoder.is_same(tied.decoder));
  UntiedNetImpl untied;
  load_weights(folder / "file", untied);
  EXPECT_TRUE(untied.encoder.equal(net.encoder));
  EXPECT_TRUE(untied.decoder.equal(net.encoder));
}

TEST(Checkpoint, AnotherModelsCheckpointIsRefusedWithEveryDifference) {
  const test::TemporaryFolder folder;
  Net other(5);
  auto tensors = copy_of(*other);
  tensors["extra"] = torch::zeros({1});
  tensors["bn.running_mean"] = tensors["bn.running_mean"].to(torch::kDouble);
  tensors.erase("fc1.bias");
  save_safetensors(folder / "file", tensors);
  Net net;
  const auto before = copy_of(*net);
  EXPECT_THAT(message_of([&] { load_checkpoint(folder / "file", {.model = net}, single_process()); }),
              AllOf(HasSubstr((folder / "file").string() + " does not fit the model: "),
                    HasSubstr("missing 'fc1.bias'"), HasSubstr("unexpected 'extra'"),
                    HasSubstr("'fc2.weight' is Float [3, 8] in the model, but Float [5, 8] in the file"),
                    HasSubstr("'bn.running_mean' is Float [8] in the model, but Double [8] in the file")));
  EXPECT_TRUE(equal(copy_of(*net), before)) << "a refused file must leave the model alone";
}

TEST(Checkpoint, LongListsOfNamesAreCut) {
  const test::TemporaryFolder folder;
  TensorMap tensors;
  for (int i = 0; i < 1000; ++i) tensors["layer" + std::to_string(i)] = torch::zeros({1});
  save_safetensors(folder / "file", tensors);
  Net net;
  const auto message = message_of([&] { load_weights(folder / "file", net); });
  EXPECT_THAT(message, HasSubstr("and 994 more"));
  EXPECT_LT(message.size(), 1000);
}

TEST(Checkpoint, WhenOneRankCannotLoadNoneDoes) {
  const test::TemporaryFolder folder;
  Net net;
  save_checkpoint(folder / "file", {.model = net}, single_process());
  std::mutex mutex;
  std::set<std::string> messages;
  run_ranks(3, [&](const GroupHandle& group) {
    Net mine(group.rank() == 1 ? 4 : 3);
    const auto before = copy_of(*mine);
    const auto message = message_of([&] { load_checkpoint(folder / "file", {.model = mine}, group); });
    EXPECT_TRUE(equal(copy_of(*mine), before));
    const std::lock_guard lock(mutex);
    messages.insert(message);
  });
  ASSERT_EQ(messages.size(), 1);
  EXPECT_THAT(*messages.begin(), AllOf(HasSubstr("on rank 1: "), HasSubstr("does not fit"), Not(HasSubstr("rank 0"))));
}

TEST(Checkpoint, PretrainedWeightsAreLoadedOnRankZeroAndAFailureIsEveryones) {
  const test::TemporaryFolder folder;
  Net net;
  save_checkpoint(folder / "file", {.model = net}, single_process(), {{"from", "here"}});
  std::mutex mutex;
  std::set<std::string> messages;
  run_ranks(2, [&](const GroupHandle& group) {
    Net mine;
    const auto before = copy_of(*mine);
    const auto metadata = load_weights(folder / "file", mine, group).metadata;
    EXPECT_EQ(metadata.size(), group.rank() == 0 ? 1 : 0);
    EXPECT_TRUE(equal(copy_of(*mine), group.rank() == 0 ? copy_of(*net) : before));
    const auto message = message_of([&] { load_weights(folder / "absent", mine, group); });
    const std::lock_guard lock(mutex);
    messages.insert(message);
  });
  ASSERT_EQ(messages.size(), 1);
  EXPECT_THAT(*messages.begin(), HasSubstr("absent"));
}

TEST(Checkpoint, WhenRankZeroCannotSaveEveryRankSaysWhy) {
  const test::TemporaryFolder folder;
  test::write_file(folder / "file", "not a folder");
  std::mutex mutex;
  std::set<std::string> messages;
  run_ranks(2, [&](const GroupHandle& group) {
    Net net;
    const auto message = message_of([&] { save_checkpoint(folder / "file/inside", {.model = net}, group); });
    const std::lock_guard lock(mutex);
    messages.insert(message);
  });
  ASSERT_EQ(messages.size(), 1);
  EXPECT_THAT(*messages.begin(), AllOf(HasSubstr("cannot save the checkpoint"), HasSubstr("Not a directory")));
  EXPECT_EQ(test::read_file(folder / "file"), "not a folder");
}

TEST(Checkpoint, AMissingOrCutFileLeavesModelAndOptimizerAlone) {
  const test::TemporaryFolder folder;
  Net net;
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  train(net, optimizer, 0, 2);
  save_checkpoint(folder / "whole", {.model = net, .optimizer = optimizer}, single_process());
  const auto bytes = test::read_file(folder / "whole");
  test::write_file(folder / "cut", bytes.substr(0, bytes.size() - 1));
  train(net, optimizer, 2, 1);
  const auto before = copy_of(*net);
  for (const char* file : {"cut", "absent"}) {
    EXPECT_THAT(
        message_of([&] { load_checkpoint(folder / file, {.model = net, .optimizer = optimizer}, single_process()); }),
        AllOf(HasSubstr("cannot load the checkpoint"), HasSubstr((folder / file).string())));
    EXPECT_TRUE(equal(copy_of(*net), before));
  }
  EXPECT_EQ(test::read_file(folder / "cut").size(), bytes.size() - 1);
}

struct OptimizerCase {
  const char* name;
  std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<torch::optim::OptimizerParamGroup>)> make;
  std::vector<std::string> fields;
};

class OptimizerCheckpoint : public ::testing::TestWithParam<OptimizerCase> {
 protected:
  // Two groups, the second with options of its own.
  static std::unique_ptr<torch::optim::Optimizer> make(Net& net, double second_lr) {
    auto optimizer = GetParam().make({torch::optim::OptimizerParamGroup(net->fc1->parameters()),
                                      torch::optim::OptimizerParamGroup(net->fc2->parameters())});
    optimizer->param_groups()[1].options().set_lr(second_lr);
    return optimizer;
  }
};

TEST_P(OptimizerCheckpoint, AResumedRunHasTheSameBits) {
  const test::TemporaryFolder folder;
  Net net;
  auto optimizer = make(net, 0.003);
  train(net, *optimizer, 0, 4);
  save_checkpoint(folder / "file", {.model = net, .optimizer = *optimizer}, single_process(), {{"epoch", "4"}});
  train(net, *optimizer, 4, 4);

  Net resumed;
  auto other = make(resumed, 0.5);  // overruled by the checkpoint
  other->param_groups()[0].options().set_lr(0.7);
  train(resumed, *other, 0, 1);
  EXPECT_EQ(load_checkpoint(folder / "file", {.model = resumed, .optimizer = *other}, single_process()).metadata,
            (Metadata{{"epoch", "4"}}));
  EXPECT_EQ(other->param_groups()[1].options().get_lr(), 0.003);
  train(resumed, *other, 4, 4);
  EXPECT_TRUE(equal(copy_of(*resumed), copy_of(*net)));
}

TEST_P(OptimizerCheckpoint, StateHasPythonsFlattenedNames) {
  const test::TemporaryFolder folder;
  Net net;
  auto optimizer = make(net, 0.003);
  train(net, *optimizer, 0, 4);
  save_checkpoint(folder / "file", {.model = net, .optimizer = *optimizer}, single_process());
  const auto tensors = load_safetensors(folder / "file");
  const size_t model_tensors = copy_of(*net).size();
  EXPECT_EQ(tensors.size(), model_tensors + 4 * GetParam().fields.size());
  for (const auto& field : GetParam().fields) {
    const auto& tensor = tensors.at("state.fc2.weight." + field);
    if (field == "step") {
      EXPECT_TRUE(tensor.equal(torch::tensor(4.0F)));
    } else {
      EXPECT_EQ(tensor.sizes(), net->fc2->weight.sizes());
    }
  }
  Net weights_only;
  load_weights(folder / "file", weights_only);
  EXPECT_TRUE(equal(copy_of(*weights_only), copy_of(*net)));
}

TEST_P(OptimizerCheckpoint, AStateThatDoesNotFitLeavesEverythingAlone) {
  const test::TemporaryFolder folder;
  Net net;
  auto optimizer = make(net, 0.003);
  train(net, *optimizer, 0, 2);
  save_checkpoint(folder / "file", {.model = net, .optimizer = *optimizer}, single_process());
  train(net, *optimizer, 2, 1);
  const auto before = copy_of(*net);
  const auto refusal = [&](torch::optim::Optimizer& into, const char* file = "file") {
    const auto message =
        message_of([&] { load_checkpoint(folder / file, {.model = net, .optimizer = into}, single_process()); });
    EXPECT_TRUE(equal(copy_of(*net), before)) << message;
    return message;
  };

  auto one_group = GetParam().make({torch::optim::OptimizerParamGroup(net->parameters())});
  EXPECT_THAT(refusal(*one_group), HasSubstr("1 parameter groups, but the file has 2"));
  auto other_order = GetParam().make({torch::optim::OptimizerParamGroup(net->fc2->parameters()),
                                      torch::optim::OptimizerParamGroup(net->fc1->parameters())});
  EXPECT_THAT(refusal(*other_order), HasSubstr("parameter group 0 has other parameters"));
  torch::optim::RMSprop unknown(net->parameters());
  EXPECT_THAT(refusal(unknown), HasSubstr("only the states of torch::optim::SGD, Adam, AdamW and Adagrad"));
  Net foreign;
  auto elsewhere = make(foreign, 0.003);
  EXPECT_THAT(refusal(*elsewhere), HasSubstr("a parameter that the model does not have"));

  // Damage the state inside a file that is valid as such.
  const SafetensorsFile file(folder / "file");
  auto tensors = load_safetensors(folder / "file");
  const auto first_field = "state.fc1.weight." + GetParam().fields.back();
  tensors[first_field] = torch::zeros({3});
  save_safetensors(folder / "reshaped", tensors, file.header().metadata);
  EXPECT_THAT(refusal(*optimizer, "reshaped"), HasSubstr("'" + first_field + "' has another shape or dtype"));
  tensors.erase(first_field);
  if (GetParam().fields.size() > 1) {
    save_safetensors(folder / "partial", tensors, file.header().metadata);
    EXPECT_THAT(refusal(*optimizer, "partial"), HasSubstr("'" + first_field + "' is missing"));
    tensors["state.fc1.weight.step"] = torch::tensor(2.5F);
    save_safetensors(folder / "step", tensors, file.header().metadata);
    EXPECT_THAT(refusal(*optimizer, "step"), HasSubstr("is no number of steps"));
  }
  for (const char* json : {"", "{", "[]", R"({"type":1})", R"({"type":"SGD","param_groups":[{"params":[1]}]})"}) {
    save_safetensors(folder / "json", copy_of(*net), {{"ddprun.optimizer", json}});
    EXPECT_THAT(refusal(*optimizer, "json"), HasSubstr("ddprun.optimizer is damaged")) << json;
  }
  save_safetensors(folder / "weights", copy_of(*net));
  EXPECT_THAT(refusal(*optimizer, "weights"), HasSubstr("holds no optimizer state"));
}

INSTANTIATE_TEST_SUITE_P(
    Optimizers, OptimizerCheckpoint,
    ::testing::Values(
        OptimizerCase{"Sgd",
                      [](auto groups) {
                        return std::make_unique<torch::optim::SGD>(
                            groups, torch::optim::SGDOptions(0.1).momentum(0.9).nesterov(true).weight_decay(1e-3));
                      },
                      {"momentum_buffer"}},
        OptimizerCase{
            "Adam",
            [](auto groups) { return std::make_unique<torch::optim::Adam>(groups, torch::optim::AdamOptions(0.01)); },
            {"step", "exp_avg", "exp_avg_sq"}},
        OptimizerCase{"AdamAmsgrad",
                      [](auto groups) {
                        return std::make_unique<torch::optim::Adam>(
                            groups, torch::optim::AdamOptions(0.01).amsgrad(true).betas({0.8, 0.99}));
                      },
                      {"step", "exp_avg", "exp_avg_sq", "max_exp_avg_sq"}},
        OptimizerCase{"AdamW",
                      [](auto groups) {
                        return std::make_unique<torch::optim::AdamW>(
                            groups, torch::optim::AdamWOptions(0.01).weight_decay(0.1).eps(1e-6));
                      },
                      {"step", "exp_avg", "exp_avg_sq"}}),
    [](const auto& each) { return each.param.name; });

TEST(Checkpoint, TheStateOfOneOptimizerDoesNotFitAnother) {
  const test::TemporaryFolder folder;
  Net net;
  torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.1));
  torch::optim::Adam adam(net->parameters());
  save_checkpoint(folder / "file", {.model = net, .optimizer = sgd}, single_process());
  EXPECT_THAT(
      message_of([&] { load_checkpoint(folder / "file", {.model = net, .optimizer = adam}, single_process()); }),
      HasSubstr("it holds the state of 'SGD', but the optimizer is Adam"));
}

TEST(ModuleRef, AnEmptyHolderIsRefusedWhereItIsGiven) {
  torch::nn::Linear empty(nullptr);
  EXPECT_THROW(ModuleRef{empty}, std::invalid_argument);
  std::shared_ptr<torch::nn::LinearImpl> nothing;
  EXPECT_THROW(ModuleRef{nothing}, std::invalid_argument);
}

}  // namespace
}  // namespace ddp

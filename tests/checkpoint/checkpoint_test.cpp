#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/sgd.h>

#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include <ddprun/checkpoint/checkpoint.h>
#include <ddprun/checkpoint/safetensors.h>

#include "tests/checkpoint/nets.h"
#include "tests/checkpoint/single_process.h"
#include "tests/checkpoint/unknown_optimizer.h"
#include "tests/support/catch.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/rank_checks.h"
#include "tests/support/ranks.h"
#include "tests/support/temporary_folder.h"

namespace ddp {
namespace {

using Catch::Matchers::ContainsSubstring;
using test::copy_of;
using test::equal;
using test::error_of;
using test::Net;
using test::run_ranks;
using test::single_process;
using test::train;

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

TEST_CASE("Checkpoint: every rank gets back what rank zero saved") {
  const test::TemporaryFolder folder;
  const auto path = folder / "new/folders/file.safetensors";
  Net net;
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1));
  train(net, optimizer, 0, 3);
  const auto saved = copy_of(*net);
  run_ranks(2, [&](const GroupHandle& group) {
    Net other;
    save_checkpoint(path, {.model = group.rank() == 0 ? net : other}, group, {{"epoch", "3"}});
    RANK_CHECK_FALSE(equal(copy_of(*other), saved));
    RANK_CHECK(load_checkpoint(path, {.model = other}, group).metadata == Metadata{{"epoch", "3"}});
    RANK_CHECK(equal(copy_of(*other), saved));
    RANK_CHECK(other->fc1->weight.requires_grad());
    RANK_CHECK(other->fc1->weight.is_leaf());
  });
}

TEST_CASE("Checkpoint: names carry no wrapper prefix and are read with and without it") {
  const test::TemporaryFolder folder;
  Net net;
  WrapperImpl wrapper(net);
  save_checkpoint(folder / "plain", {.model = wrapper}, single_process());
  const auto plain = load_safetensors(folder / "plain");
  CHECK(plain.count("fc1.weight") == 1);

  TensorMap prefixed, twice;
  for (const auto& [name, tensor] : plain) prefixed["module." + name] = tensor;
  for (const auto& [name, tensor] : plain) twice["module.module." + name] = tensor;
  save_safetensors(folder / "prefixed", prefixed);
  save_safetensors(folder / "twice", twice);
  for (const char* file : {"plain", "prefixed", "twice"}) {
    Net into;
    load_weights(folder / file, into);
    INFO(file);
    CHECK(equal(copy_of(*into), plain));
    Net wrapped;
    WrapperImpl around(wrapped);
    load_checkpoint(folder / file, {.model = around}, single_process());
    CHECK(equal(copy_of(*wrapped), plain));
  }
}

// As Module::parameters() lists it; LibTorch's optimizers have it twice.
TEST_CASE("Checkpoint: a weight that an optimizer has twice has one state") {
  const test::TemporaryFolder folder;
  const auto options = torch::optim::SGDOptions(0.1).momentum(0.9);
  TiedNetImpl net;
  const std::vector<at::Tensor> twice{net.encoder, net.encoder};
  torch::optim::SGD sgd(twice, options);
  torch::optim::AdamW adamw(twice);
  for (torch::optim::Optimizer* optimizer :
       {static_cast<torch::optim::Optimizer*>(&sgd), static_cast<torch::optim::Optimizer*>(&adamw)}) {
    net.encoder.mutable_grad() = at::ones_like(net.encoder);
    optimizer->step();
    save_checkpoint(folder / "file", {.model = net, .optimizer = *optimizer}, single_process());
    const at::Tensor saved = net.encoder.detach().clone();
    optimizer->step();
    const at::Tensor expected = net.encoder.detach().clone();
    load_checkpoint(folder / "file", {.model = net, .optimizer = *optimizer}, single_process());
    CHECK(net.encoder.equal(saved));
    optimizer->step();
    CHECK(net.encoder.equal(expected));
  }
}

TEST_CASE("Checkpoint: tied weights are stored once and load into tied and untied models") {
  const test::TemporaryFolder folder;
  TiedNetImpl net;
  save_checkpoint(folder / "file", {.model = net}, single_process());
  CHECK(load_safetensors(folder / "file").size() == 1);
  TiedNetImpl tied;
  load_weights(folder / "file", tied);
  CHECK(tied.encoder.equal(net.encoder));
  CHECK(tied.encoder.is_same(tied.decoder));
  UntiedNetImpl untied;
  load_weights(folder / "file", untied);
  CHECK(untied.encoder.equal(net.encoder));
  CHECK(untied.decoder.equal(net.encoder));
}

TEST_CASE("Checkpoint: another model's checkpoint is refused with every difference") {
  const test::TemporaryFolder folder;
  Net other(5);
  auto tensors = copy_of(*other);
  tensors["extra"] = torch::zeros({1});
  tensors["bn.running_mean"] = tensors["bn.running_mean"].to(torch::kDouble);
  tensors.erase("fc1.bias");
  save_safetensors(folder / "file", tensors);
  Net net;
  const auto before = copy_of(*net);
  CHECK_THROWS_WITH(load_checkpoint(folder / "file", {.model = net}, single_process()),
                    ContainsSubstring((folder / "file").string() + " does not fit the model: ") &&
                        ContainsSubstring("missing 'fc1.bias'") && ContainsSubstring("unexpected 'extra'") &&
                        ContainsSubstring("'fc2.weight' is Float [3, 8] in the model, but Float [5, 8] in the file") &&
                        ContainsSubstring("'bn.running_mean' is Float [8] in the model, but Double [8] in the file"));
  INFO("a refused file must leave the model alone");
  CHECK(equal(copy_of(*net), before));
}

TEST_CASE("Checkpoint: long lists of names are cut") {
  const test::TemporaryFolder folder;
  TensorMap tensors;
  for (int i = 0; i < 1000; ++i) tensors["layer" + std::to_string(i)] = torch::zeros({1});
  save_safetensors(folder / "file", tensors);
  Net net;
  const auto message = error_of([&] { load_weights(folder / "file", net); });
  CHECK_THAT(message, ContainsSubstring("and 994 more"));
  CHECK(message.size() < 1000);
}

TEST_CASE("Checkpoint: when one rank cannot load none does") {
  const test::TemporaryFolder folder;
  Net net;
  save_checkpoint(folder / "file", {.model = net}, single_process());
  std::mutex mutex;
  std::set<std::string> messages;
  run_ranks(3, [&](const GroupHandle& group) {
    Net mine(group.rank() == 1 ? 4 : 3);
    const auto before = copy_of(*mine);
    const auto message = error_of([&] { load_checkpoint(folder / "file", {.model = mine}, group); });
    RANK_CHECK(equal(copy_of(*mine), before));
    const std::lock_guard lock(mutex);
    messages.insert(message);
  });
  REQUIRE(messages.size() == 1);
  CHECK_THAT(*messages.begin(),
             ContainsSubstring("on rank 1: ") && ContainsSubstring("does not fit") && !ContainsSubstring("rank 0"));
}

TEST_CASE("Checkpoint: pretrained weights are loaded on rank zero and a failure is everyone's") {
  const test::TemporaryFolder folder;
  Net net;
  save_checkpoint(folder / "file", {.model = net}, single_process(), {{"from", "here"}});
  std::mutex mutex;
  std::set<std::string> messages;
  run_ranks(2, [&](const GroupHandle& group) {
    Net mine;
    const auto before = copy_of(*mine);
    const auto metadata = load_weights(folder / "file", mine, group).metadata;
    RANK_CHECK(metadata.size() == (group.rank() == 0 ? 1 : 0));
    RANK_CHECK(equal(copy_of(*mine), group.rank() == 0 ? copy_of(*net) : before));
    const auto message = error_of([&] { load_weights(folder / "absent", mine, group); });
    const std::lock_guard lock(mutex);
    messages.insert(message);
  });
  REQUIRE(messages.size() == 1);
  CHECK_THAT(*messages.begin(), ContainsSubstring("absent"));
}

TEST_CASE("Checkpoint: when rank zero cannot save every rank says why") {
  const test::TemporaryFolder folder;
  test::write_file(folder / "file", "not a folder");
  std::mutex mutex;
  std::set<std::string> messages;
  run_ranks(2, [&](const GroupHandle& group) {
    Net net;
    const auto message = error_of([&] { save_checkpoint(folder / "file/inside", {.model = net}, group); });
    const std::lock_guard lock(mutex);
    messages.insert(message);
  });
  REQUIRE(messages.size() == 1);
  CHECK_THAT(*messages.begin(),
             ContainsSubstring("cannot save the checkpoint") && ContainsSubstring("Not a directory"));
  CHECK(test::read_file(folder / "file") == "not a folder");
}

TEST_CASE("Checkpoint: a missing or cut file leaves model and optimizer alone") {
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
    CHECK_THROWS_WITH(load_checkpoint(folder / file, {.model = net, .optimizer = optimizer}, single_process()),
                      ContainsSubstring("cannot load the checkpoint") && ContainsSubstring((folder / file).string()));
    CHECK(equal(copy_of(*net), before));
  }
  CHECK(test::read_file(folder / "cut").size() == bytes.size() - 1);
}

struct OptimizerCase {
  const char* name;
  std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<torch::optim::OptimizerParamGroup>)> make;
  std::vector<std::string> fields;
};

class OptimizerCheckpoint {
 protected:
  // Two groups, the second with options of its own.
  std::unique_ptr<torch::optim::Optimizer> make(Net& net, double second_lr) const {
    auto optimizer = kind_.make({torch::optim::OptimizerParamGroup(net->fc1->parameters()),
                                 torch::optim::OptimizerParamGroup(net->fc2->parameters())});
    optimizer->param_groups()[1].options().set_lr(second_lr);
    return optimizer;
  }
  const OptimizerCase kind_ = GENERATE(
      as<OptimizerCase>(),
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
                    {"step", "exp_avg", "exp_avg_sq"}});
  FIXTURE_INFO("optimizer: " << kind_.name);
};

void train_by_closure(Net& net, torch::optim::Optimizer& optimizer, int64_t first_step, int64_t steps) {
  for (auto step = first_step; step < first_step + steps; ++step) {
    const auto x = (torch::arange(24, torch::kFloat).view({6, 4}) * (step + 1)).sin();
    optimizer.step([&] {
      optimizer.zero_grad();
      const auto loss = torch::nn::functional::mse_loss(net(x), x.narrow(1, 0, 3).cos());
      loss.backward();
      return loss;
    });
  }
}

TEST_CASE("LbfgsCheckpoint: a resumed run has the same bits, with and without line search and history") {
  const auto search = GENERATE(as<std::optional<std::string>>(), std::nullopt, "strong_wolfe");
  const int64_t before = GENERATE(0, 1, 4);
  CAPTURE(search, before);
  const test::TemporaryFolder folder;
  const auto options = torch::optim::LBFGSOptions(0.1).max_iter(3).history_size(4).line_search_fn(search);
  Net net, resumed;
  torch::optim::LBFGS optimizer(net->parameters(), options),
      other(resumed->parameters(), torch::optim::LBFGSOptions(9));
  train_by_closure(net, optimizer, 0, before);
  save_checkpoint(folder / "file", {.model = net, .optimizer = optimizer}, single_process());
  train_by_closure(net, optimizer, before, 3);
  train_by_closure(resumed, other, 7, 1);
  load_checkpoint(folder / "file", {.model = resumed, .optimizer = other}, single_process());
  train_by_closure(resumed, other, before, 3);
  CHECK(equal(copy_of(*resumed), copy_of(*net)));
}

TEST_CASE("LbfgsCheckpoint: a state that does not fit is refused and changes nothing") {
  const test::TemporaryFolder folder;
  Net net;
  torch::optim::LBFGS optimizer(net->parameters(), torch::optim::LBFGSOptions(0.1).max_iter(3).history_size(4));
  train_by_closure(net, optimizer, 0, 3);
  save_checkpoint(folder / "file", {.model = net, .optimizer = optimizer}, single_process());
  const SafetensorsFile file(folder / "file");
  const auto tensors = load_safetensors(folder / "file");
  const std::string first = "state.fc1.weight.";
  REQUIRE(tensors.contains(first + "old_dirs.3"));
  train_by_closure(net, optimizer, 3, 1);
  const auto kept = copy_of(*net);
  const auto refusal = [&](const TensorMap& changed) {
    save_safetensors(folder / "changed", changed, file.header().metadata);
    const auto message = error_of(
        [&] { load_checkpoint(folder / "changed", {.model = net, .optimizer = optimizer}, single_process()); });
    CHECK(equal(copy_of(*net), kept));
    return message;
  };
  const auto with = [&](const std::string& field, const at::Tensor& tensor) {
    auto changed = tensors;
    changed.insert_or_assign(first + field, tensor);
    return changed;
  };
  CHECK_THAT(refusal(with("d", torch::zeros({3}))), ContainsSubstring("the state d must be"));
  CHECK_THAT(refusal(with("old_stps.1", torch::zeros({3}))), ContainsSubstring("the state old_stps.1 must be"));
  CHECK_THAT(refusal(with("n_iter", torch::tensor(1.5))), ContainsSubstring("n_iter is not a number of steps"));
  auto lacking = tensors;
  lacking.erase(first + "ro.3");
  CHECK_THAT(refusal(lacking), ContainsSubstring("must be of one length, got 4, 4 and 3"));
  lacking = tensors;
  lacking.erase(first + "prev_flat_grad");
  CHECK_THAT(refusal(lacking), ContainsSubstring("the state prev_flat_grad is missing"));
  auto elsewhere = tensors;
  elsewhere.emplace("state.fc1.bias.n_iter", torch::tensor(1));
  CHECK_THAT(refusal(elsewhere), ContainsSubstring("LBFGS has a state for its first parameter only"));
}

TEST_CASE_METHOD(OptimizerCheckpoint, "OptimizerCheckpoint: a resumed run has the same bits") {
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
  CHECK(load_checkpoint(folder / "file", {.model = resumed, .optimizer = *other}, single_process()).metadata ==
        Metadata{{"epoch", "4"}});
  CHECK(other->param_groups()[1].options().get_lr() == 0.003);
  train(resumed, *other, 4, 4);
  CHECK(equal(copy_of(*resumed), copy_of(*net)));
}

TEST_CASE_METHOD(OptimizerCheckpoint, "OptimizerCheckpoint: state has Python's flattened names") {
  const test::TemporaryFolder folder;
  Net net;
  auto optimizer = make(net, 0.003);
  train(net, *optimizer, 0, 4);
  save_checkpoint(folder / "file", {.model = net, .optimizer = *optimizer}, single_process());
  const auto tensors = load_safetensors(folder / "file");
  const size_t model_tensors = copy_of(*net).size();
  CHECK(tensors.size() == model_tensors + 4 * kind_.fields.size());
  for (const auto& field : kind_.fields) {
    const auto& tensor = tensors.at("state.fc2.weight." + field);
    if (field == "step") {
      CHECK(tensor.equal(torch::tensor(4.0F)));
    } else {
      CHECK(tensor.sizes() == net->fc2->weight.sizes());
    }
  }
  Net weights_only;
  load_weights(folder / "file", weights_only);
  CHECK(equal(copy_of(*weights_only), copy_of(*net)));
}

TEST_CASE_METHOD(OptimizerCheckpoint, "OptimizerCheckpoint: a state that does not fit leaves everything alone") {
  const test::TemporaryFolder folder;
  Net net;
  auto optimizer = make(net, 0.003);
  train(net, *optimizer, 0, 2);
  save_checkpoint(folder / "file", {.model = net, .optimizer = *optimizer}, single_process());
  train(net, *optimizer, 2, 1);
  const auto before = copy_of(*net);
  const auto refusal = [&](torch::optim::Optimizer& into, const char* file = "file") {
    const auto message =
        error_of([&] { load_checkpoint(folder / file, {.model = net, .optimizer = into}, single_process()); });
    INFO(message);
    CHECK(equal(copy_of(*net), before));
    return message;
  };

  auto one_group = kind_.make({torch::optim::OptimizerParamGroup(net->parameters())});
  CHECK_THAT(refusal(*one_group), ContainsSubstring("1 parameter groups, but the file has 2"));
  auto other_order = kind_.make({torch::optim::OptimizerParamGroup(net->fc2->parameters()),
                                 torch::optim::OptimizerParamGroup(net->fc1->parameters())});
  CHECK_THAT(refusal(*other_order), ContainsSubstring("parameter group 0 has other parameters"));
  test::UnknownOptimizer unknown(net->parameters());
  CHECK_THAT(refusal(unknown),
             ContainsSubstring("only the states of torch::optim::SGD, Adam, AdamW, Adagrad, RMSprop and LBFGS"));
  Net foreign;
  auto elsewhere = make(foreign, 0.003);
  CHECK_THAT(refusal(*elsewhere), ContainsSubstring("a parameter that the model does not have"));

  // Damage the state inside a file that is valid as such.
  const SafetensorsFile file(folder / "file");
  auto tensors = load_safetensors(folder / "file");
  const auto first_field = "state.fc1.weight." + kind_.fields.back();
  tensors[first_field] = torch::zeros({3});
  save_safetensors(folder / "reshaped", tensors, file.header().metadata);
  CHECK_THAT(refusal(*optimizer, "reshaped"),
             ContainsSubstring("'" + first_field + "' has a different shape or dtype"));
  tensors.erase(first_field);
  if (kind_.fields.size() > 1) {
    save_safetensors(folder / "partial", tensors, file.header().metadata);
    CHECK_THAT(refusal(*optimizer, "partial"), ContainsSubstring("'" + first_field + "' is missing"));
    tensors["state.fc1.weight.step"] = torch::tensor(2.5F);
    save_safetensors(folder / "step", tensors, file.header().metadata);
    CHECK_THAT(refusal(*optimizer, "step"), ContainsSubstring("is not a number of steps"));
  }
  for (const char* json : {"", "{", "[]", R"({"type":1})", R"({"type":"SGD","param_groups":[{"params":[1]}]})"}) {
    save_safetensors(folder / "json", copy_of(*net), {{"ddprun.optimizer", json}});
    INFO(json);
    CHECK_THAT(refusal(*optimizer, "json"), ContainsSubstring("ddprun.optimizer is damaged"));
  }
  save_safetensors(folder / "weights", copy_of(*net));
  CHECK_THAT(refusal(*optimizer, "weights"), ContainsSubstring("holds no optimizer state"));
}

TEST_CASE("Checkpoint: the state of one optimizer does not fit another") {
  const test::TemporaryFolder folder;
  Net net;
  torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.1));
  torch::optim::Adam adam(net->parameters());
  save_checkpoint(folder / "file", {.model = net, .optimizer = sgd}, single_process());
  CHECK_THROWS_WITH(load_checkpoint(folder / "file", {.model = net, .optimizer = adam}, single_process()),
                    ContainsSubstring("it holds the state of 'SGD', but the optimizer is Adam"));
}

TEST_CASE("Checkpoint: hyper-parameters that are not finite numbers come back as they are") {
  const test::TemporaryFolder folder;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const auto path = folder / "state.safetensors";
  Net net;
  torch::optim::Adam adam(net->parameters(), torch::optim::AdamOptions(0.1));
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  static_cast<torch::optim::AdamOptions&>(adam.param_groups()[0].options())
      .lr(kNaN)
      .eps(kInfinity)
      .weight_decay(-kInfinity)
      .betas({kNaN, 0.5});
  save_checkpoint(path, {.model = net, .optimizer = adam}, single_process());
  torch::optim::Adam other(net->parameters(), torch::optim::AdamOptions(0.1));
  load_checkpoint(path, {.model = net, .optimizer = other}, single_process());
  const auto& loaded = static_cast<const torch::optim::AdamOptions&>(other.param_groups()[0].options());
  CHECK(std::isnan(loaded.lr()));
  CHECK(loaded.eps() == kInfinity);
  CHECK(loaded.weight_decay() == -kInfinity);
  CHECK(std::isnan(std::get<0>(loaded.betas())));
  CHECK(std::get<1>(loaded.betas()) == 0.5);
}

TEST_CASE("AnyModuleRef: an empty holder is refused where it is given") {
  torch::nn::Linear empty(nullptr);
  CHECK_THROWS_AS(AnyModuleRef{empty}, std::invalid_argument);
  std::shared_ptr<torch::nn::LinearImpl> nothing;
  CHECK_THROWS_AS(AnyModuleRef{nothing}, std::invalid_argument);
}

}  // namespace
}  // namespace ddp

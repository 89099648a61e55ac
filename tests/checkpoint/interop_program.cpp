// Continues a run that Python or C++ has saved: interop_program MODEL OPTIMIZER SOURCE TARGET FIRST STEPS. MODEL is
// lenet or resnet18, OPTIMIZER sgd, adam or ddp::optim's fused_sgd, fused_adam, fused_adamw, fused_adagrad, own_rmsprop
// and so on, torch_rmsprop, torch_lbfgs; SOURCE and TARGET are .pt or .safetensors files, or for SOURCE - nothing.
#include <torch/nn/functional/loss.h>
#include <torch/optim/adam.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>
#include <torch/serialize.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <ddprun/checkpoint/checkpoint.h>
#include <ddprun/checkpoint/tensor_files.h>
#include <ddprun/optim/more_optimizers.h>
#include <ddprun/optim/optimizers.h>

#include "checkpoint/module_state.h"
#include "checkpoint/optimizer_state.h"
#include "examples/models/lenet.h"
#include "examples/models/resnet.h"

namespace {

// With a learning rate that Python's file replaces; null: not one of ours.
std::unique_ptr<torch::optim::Optimizer> own_optimizer(const std::string& name,
                                                       const std::vector<at::Tensor>& parameters) {
  using namespace ddp::optim;
  if (name == "own_rmsprop") return std::make_unique<RMSprop>(parameters, 9);
  if (name == "torch_lbfgs") return std::make_unique<torch::optim::LBFGS>(parameters, torch::optim::LBFGSOptions(9));
  if (name == "torch_rmsprop") return std::make_unique<torch::optim::RMSprop>(parameters, 9);
  if (name == "own_adadelta") return std::make_unique<Adadelta>(parameters, 9);
  if (name == "own_adamax") return std::make_unique<Adamax>(parameters, 9);
  if (name == "own_nadam") return std::make_unique<NAdam>(parameters, 9);
  if (name == "own_radam") return std::make_unique<RAdam>(parameters, 9);
  if (name == "own_asgd") return std::make_unique<ASGD>(parameters, 9);
  if (name == "own_rprop") return std::make_unique<Rprop>(parameters, 9);
  if (name == "own_adafactor") return std::make_unique<Adafactor>(parameters, 9);
  return nullptr;
}

template <typename Net>
void continue_run(Net net, char** arguments) {
  const std::string optimizer_name = arguments[2], source = arguments[3], target = arguments[4];
  const int first = std::stoi(arguments[5]), steps = std::stoi(arguments[6]);
  std::unique_ptr<torch::optim::Optimizer> optimizer;
  if (optimizer = own_optimizer(optimizer_name, net->parameters()); optimizer) {
    // made
  } else if (optimizer_name == "sgd") {
    optimizer = std::make_unique<torch::optim::SGD>(net->parameters(),
                                                    torch::optim::SGDOptions(0.01).momentum(0.9).weight_decay(1e-4));
  } else if (optimizer_name == "fused_sgd") {
    optimizer =
        std::make_unique<ddp::optim::SGD>(net->parameters(), ddp::optim::SGDOptions(9));  // Python's file decides
  } else if (optimizer_name == "fused_adam") {
    optimizer = std::make_unique<ddp::optim::Adam>(net->parameters(), ddp::optim::AdamOptions(9));
  } else if (optimizer_name == "fused_adamw") {
    optimizer = std::make_unique<ddp::optim::AdamW>(net->parameters(), ddp::optim::AdamWOptions(9));
  } else if (optimizer_name == "fused_adagrad") {
    optimizer = std::make_unique<ddp::optim::Adagrad>(net->parameters(), ddp::optim::AdagradOptions(9));
  } else {
    optimizer = std::make_unique<torch::optim::Adam>(net->parameters(), torch::optim::AdamOptions(1e-3));
  }
  auto group = ddp::init_process_group({.rank_info = ddp::RankInfo{}});
  if (source != "-") ddp::load_checkpoint(source, {.model = net, .optimizer = *optimizer}, group);
  net->train();
  for (int step = first; step < first + steps; ++step) {
    const auto x = (torch::arange(2 * 3 * 32 * 32, torch::kFloat).view({2, 3, 32, 32}) * (0.001 * (step + 1))).sin();
    const auto y = torch::arange(2, torch::kLong) + step % 3;
    optimizer->step([&] {
      optimizer->zero_grad();
      const auto loss = torch::nn::functional::cross_entropy(net(x), y);
      loss.backward();
      return loss;
    });
  }
  if (target.ends_with(".pt")) {
    ddp::PtExtras extras;
    const auto model = ddp::module_state(*net);
    extras.optimizer_groups = ddp::save_optimizer_state(*optimizer, model, extras.optimizer);
    ddp::save_pt(target, model, extras);
  } else if (target.ends_with(".libtorch")) {
    torch::save(net, target);
    torch::save(*optimizer, target + ".optimizer");
  } else {
    ddp::save_checkpoint(target, {.model = net, .optimizer = *optimizer}, group);
  }
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 7) throw std::invalid_argument("6 arguments are needed");
  if (std::string(argv[1]) == "lenet") {
    continue_run(models::LeNet(), argv);
  } else {
    continue_run(models::ResNet18(models::ResNetOptions{.num_classes = 10}), argv);
  }
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}

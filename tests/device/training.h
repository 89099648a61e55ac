// Training steps whose numbers depend on the seed, the rank and the step alone, on whatever device a group has.
#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/transformercoder.h>
#include <torch/nn/modules/transformerlayer.h>

#include <array>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include <ddprun/amp/amp.h>
#include <ddprun/amp/autocast.h>
#include <ddprun/amp/grad_scaler.h>
#include <ddprun/ddp/distributed_data_parallel.h>
#include <ddprun/optim/optimizers.h>
#include <ddprun/recompute/recompute.h>
#include <ddprun/syncbn/conversion.h>

#include "examples/models/lenet.h"
#include "examples/models/resnet.h"

namespace ddp::test {

constexpr int kClasses = 10;

inline at::Tensor numbers(at::IntArrayRef shape, int64_t salt) {
  return at::randn(shape, at::detail::createCPUGenerator(static_cast<uint64_t>(salt)));
}

/// ResNet-18 with a sixteenth of its channels: all of its layers, in a fraction of its time.
struct SlimResNet18Impl : torch::nn::Module {
  SlimResNet18Impl() {
    int64_t in = kWidth;
    for (const int64_t out : {kWidth, 2 * kWidth, 4 * kWidth, 8 * kWidth}) {
      blocks->push_back(models::BasicBlock(in, out, in == out ? 1 : 2));
      blocks->push_back(models::BasicBlock(out, out, 1));
      in = out;
    }
    register_module("blocks", blocks);
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return head(blocks->forward(torch::relu(norm(stem(x)))).mean({2, 3}));
  }
  static constexpr int64_t kWidth = 4;
  torch::nn::Conv2d stem = register_module("stem", models::detail::conv(3, kWidth, 3, 1));
  torch::nn::BatchNorm2d norm = register_module("norm", torch::nn::BatchNorm2d(kWidth));
  torch::nn::Sequential blocks;
  torch::nn::Linear head = register_module("head", torch::nn::Linear(8 * kWidth, kClasses));
};
TORCH_MODULE(SlimResNet18);

/// The same with its blocks as regions of activation checkpointing, so that SyncBatchNorm communicates in the backward,
/// too.
struct RecomputedResNet18Impl : SlimResNet18Impl {
  torch::Tensor forward(const torch::Tensor& x) {
    const auto segments = static_cast<int64_t>(blocks->size());
    return head(checkpoint_sequential(blocks, segments, torch::relu(norm(stem(x)))).mean({2, 3}));
  }
};
TORCH_MODULE(RecomputedResNet18);

struct TransformerImpl : torch::nn::Module {
  static constexpr int64_t kWidth = 16;
  torch::Tensor forward(const torch::Tensor& x) { return head(encoder(x).mean(0)); }
  torch::nn::TransformerEncoder encoder = register_module(
      "encoder", torch::nn::TransformerEncoder(torch::nn::TransformerEncoderOptions(
                     torch::nn::TransformerEncoderLayer(
                         torch::nn::TransformerEncoderLayerOptions(kWidth, 2).dim_feedforward(32).dropout(0)),
                     2)));
  torch::nn::Linear head = register_module("head", torch::nn::Linear(kWidth, kClasses));
};
TORCH_MODULE(Transformer);

/// The mixed-precision levels of ddp::amp, and Autocast with a GradScaler.
inline constexpr const char* kAutocast = "autocast";
inline constexpr std::array kLevels{"O0", "O1", "O2", "O3", kAutocast};

/// What is trained, on how much.
struct Work {
  std::string level = "O0";
  std::vector<int64_t> input{};
  int64_t batch_dimension = 0;
  int steps = 2;
  std::function<DdpOptions(const GroupHandle&)> options = [](const GroupHandle&) { return DdpOptions(); };
};

template <typename Net>
Net make_net(const std::function<Net()>& construct) {
  static std::mutex mutex;  // constructors draw from the process's generator
  static std::vector<at::Tensor> first;
  const std::lock_guard lock(mutex);
  Net net = construct();
  const at::NoGradGuard no_grad;
  const std::vector<at::Tensor> parameters = net->parameters();
  for (size_t i = first.size(); i < parameters.size(); ++i) {
    first.push_back(numbers(parameters[i].sizes(), 101 + static_cast<int64_t>(i)) * 0.1);
  }
  for (size_t i = 0; i < parameters.size(); ++i) at::Tensor(parameters[i]).copy_(first[i]);
  return net;
}

/// All parameters and buffers after some steps of DistributedDataParallel with SyncBatchNorm, on the CPU.
template <typename Net>
std::vector<at::Tensor> train(const GroupHandle& group, const std::function<Net()>& construct, const Work& work) {
  const c10::Device device = group.device();
  Net net = make_net(construct);
  net->to(device);
  convert_sync_batchnorm(net, group);
  optim::SGD optimizer(net->parameters(), optim::SGDOptions(0.05).momentum(0.9));
  const bool scales = work.level == kAutocast;
  // Of so few steps none is skipped.
  constexpr double kScale = 1024;
  const auto amp = amp::initialize(
      net, optimizer,
      {.opt_level = scales ? "O0" : work.level, .dtype = at::kHalf, .max_loss_scale = kScale, .group = group});
  GradScaler scaler({.init_scale = kScale, .enabled = scales, .device = device.type(), .group = group});
  auto mixed = amp.model(net);
  DdpOptions options = work.options(group);
  options.bucket_cap_bytes = 4096;
  DistributedDataParallel model(mixed, group, options);
  for (int step = 0; step < work.steps; ++step) {
    const int64_t salt = 1000 + step * 100 + group.rank();
    at::Tensor data = numbers(work.input, salt);
    at::Tensor target = at::randint(kClasses, {work.input[static_cast<size_t>(work.batch_dimension)]},
                                    at::detail::createCPUGenerator(static_cast<uint64_t>(salt)), at::kLong);
    if (device.is_cuda()) {
      data = data.pin_memory();
      target = target.pin_memory();
    }
    data = data.to(device, /*non_blocking=*/true);
    target = target.to(device, /*non_blocking=*/true);
    optimizer.zero_grad();
    at::Tensor loss;
    {
      const auto of_level = amp.autocast();
      const Autocast autocast(device, {.dtype = at::kHalf, .enabled = scales || work.level == "O1"});
      loss = torch::nn::functional::cross_entropy(model(data), target);
    }
    if (scales) {
      scaler.scale(loss).backward();
      scaler.step(optimizer);
      scaler.update();
    } else {
      amp.scale_loss(loss, optimizer).backward();
      amp.step(optimizer);
    }
  }
  std::vector<at::Tensor> state;
  for (const auto& item : net->named_parameters()) state.push_back(item.value().detach().cpu().clone());
  for (const auto& item : net->named_buffers()) state.push_back(item.value().detach().cpu().clone());
  return state;
}

}  // namespace ddp::test

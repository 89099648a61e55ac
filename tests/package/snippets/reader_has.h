// What a reader of the pages has already when they come to a block of code: a net, a group, data. A block that declares
// one of these itself means its own. Nothing is defined, since nothing is linked.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <filesystem>
#include <iostream>
#include <span>
#include <vector>

#include <ddprun/ddp.h>

struct NetImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x);
};
TORCH_MODULE(Net);

extern ddp::ProcessGroup group;
extern Net net;
extern ddp::DistributedDataParallel<Net> model;
extern ddp::FullySharded<Net> sharded;
extern torch::Tensor x, y, loss, batch_loss, statistics, weight;
extern ddp::Cifar10 dataset, test;
extern std::filesystem::path dir, root;
extern ddp::Normalization normalization;
extern ddp::optim::SGD optimizer;
extern ddp::DistributedSampler sampler;
extern ddp::DeviceLoader<ddp::Cifar10> loader;
extern ddp::GradScaler scaler;
extern ddp::CheckpointManager checkpoints;
extern int64_t step, steps, epoch;
extern bool resumed;
int train();
extern int argc;
extern char** argv;
void train_one_step();
double train_on(const ddp::Batch& batch);
double train_on(const torch::Tensor& data, const torch::Tensor& target);

// What a page's earlier blocks made, and where it speaks of numbers or functions, under names that are tensors
// elsewhere.
namespace port_page {
struct Net : torch::nn::Module {
  torch::Tensor forward(torch::Tensor x);
};
}  // namespace port_page
namespace amp_page {
extern ddp::amp::Amp amp;
}
namespace training_page {
extern ddp::TrainingOptions options;
}
namespace checkpoints_page {
extern double loss;
extern Net generator, discriminator;
extern ddp::DistributedDataParallel<Net> generator_model, discriminator_model;
extern ddp::optim::Adam generator_optimizer, discriminator_optimizer;
extern ddp::TrainingOptions options;
}  // namespace checkpoints_page
namespace guide_memory_page {
extern std::vector<torch::nn::Linear> blocks;
extern torch::nn::Linear head;
}  // namespace guide_memory_page
namespace monitor_page {
extern double loss, accuracy;
extern torch::Tensor batch;
}  // namespace monitor_page
namespace optim_page {
extern torch::nn::CrossEntropyLoss loss;
}

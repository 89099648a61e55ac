// Data parallel training at its smallest: four samples, one weight, one bias. Shows which samples each rank sees, and
// what set_epoch() is for.
//
//   ddprun --nproc_per_node=2 build/release/bin/toy_linear
//   ddprun --nproc_per_node=2 build/release/bin/toy_linear --epochs 60 --resume --tensorboard runs/toy_linear
//   ddprun --nproc_per_node=2 build/release/bin/toy_linear --no-set-epoch
//   build/release/bin/toy_linear                                                  one process, no launcher
//   torchrun --no-python --nproc_per_node=2 build/release/bin/toy_linear
#include <CLI/CLI.hpp>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include <ddprun/ddp.h>
#include <ddprun/training/command_line.h>

namespace {

struct Arguments {
  int64_t epochs = 2;
  bool no_set_epoch = false, resume = false;
  std::string checkpoint = "toy_linear.safetensors", tensorboard;
  ddp::ProcessGroupOptions job;
};

void declare(CLI::App& app, Arguments& args) {
  ddp::add_options(app, args.job);
  app.add_option("--epochs", args.epochs, "Passes over the data")->check(ddp::whole(1))->capture_default_str();
  app.add_flag("--no-set-epoch", args.no_set_epoch, "Do not call set_epoch(): one order of samples");
  app.add_option("--checkpoint", args.checkpoint, "File to save to, after each epoch")->capture_default_str();
  app.add_flag("--resume", args.resume, "Resume from --checkpoint, if it exists");
  app.add_option("--tensorboard", args.tensorboard, "Loss, weight and bias for TensorBoard")->type_name("DIR");
}

}  // namespace

int main(int argc, char** argv) try {
  CLI::App app("Fits y = 2x + 1 to four samples with data parallel training.");
  Arguments args;
  declare(app, args);
  CLI11_PARSE(app, argc, argv);

  auto group = ddp::init_process_group(args.job);
  const int rank = group.rank();
  std::printf("rank %d of %d: process %d, device %s\n", rank, group.size(), getpid(), group.device().str().c_str());

  const std::vector<float> data = {1, 2, 3, 4};
  ddp::DistributedSampler sampler(static_cast<int64_t>(data.size()), group);

  ddp::manual_seed(0, group);
  torch::nn::Linear net(1, 1);
  net->to(group.device());
  ddp::DistributedDataParallel<torch::nn::Linear> model(net, group);
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.01));

  const ddp::CheckpointState state{.model = net, .optimizer = optimizer};
  int64_t first_epoch = 0;
  if (args.resume && std::filesystem::exists(args.checkpoint)) {
    first_epoch = std::stoll(ddp::load_checkpoint(args.checkpoint, state, group).metadata.at("epochs"));
    ddp::print_on_main(group, "resumed from ", args.checkpoint, ": continuing with epoch ", first_epoch);
  }
  ddp::SummaryWriter curves(args.tensorboard, group, {.purge_step = first_epoch});

  for (int64_t epoch = first_epoch; epoch < args.epochs; ++epoch) {
    if (!args.no_set_epoch) sampler.set_epoch(epoch);
    std::vector<float> samples;
    for (const auto index : sampler.indices()) samples.push_back(data.at(static_cast<size_t>(index)));

    std::ostringstream seen;
    for (const float sample : samples) seen << (seen.tellp() > 0 ? ", " : "") << sample;
    std::printf("rank %d: epoch %lld: samples [%s]\n", rank, static_cast<long long>(epoch), seen.str().c_str());

    const auto x = torch::tensor(samples).unsqueeze(1).to(group.device());
    optimizer.zero_grad();
    const auto loss = torch::nn::functional::mse_loss(model(x), 2 * x + 1);
    loss.backward();
    optimizer.step();

    curves.add_scalar("loss", ddp::reduce_value(loss.detach(), group), epoch);
    curves.add_scalar("weight", net->weight, epoch);
    curves.add_scalar("bias", net->bias, epoch);
    // Rank 0 writes, the others wait.
    ddp::save_checkpoint(args.checkpoint, state, group, {{"epochs", std::to_string(epoch + 1)}});
  }
  if (rank == 0) std::printf("rank 0: saved %s\n", args.checkpoint.c_str());

  // Every rank reads what rank 0 has written, to its own device.
  torch::nn::Linear loaded(1, 1);
  loaded->to(group.device());
  ddp::load_checkpoint(args.checkpoint, {.model = loaded}, group);
  std::printf("rank %d: loaded weight %.4f, bias %.4f on %s\n", rank, loaded->weight.item<double>(),
              loaded->bias.item<double>(), loaded->weight.device().str().c_str());
  return 0;
} catch (const std::exception& error) {
  return ddp::report(error);
}

// A DCGAN: two nets with an optimizer each, trained against each other on CIFAR-10 pictures. Both nets, both optimizers
// and all random numbers are in one checkpoint, from which a run continues with the same bits.
//
//   ddprun -n 2 build/release/bin/dcgan --epochs 5
//   ddprun -n 2 build/release/bin/dcgan --epochs 10 --resume
//   build/release/bin/dcgan --data-dir cifar-10-batches-bin                       one process, no launcher
//   ddprun -n 2 build/release/bin/dcgan --tensorboard runs/dcgan                  pictures that it makes, after each
//   epoch torchrun --no-python --nproc_per_node=2 build/release/bin/dcgan
//
// The default data is the sample that comes with the project; scripts/get_cifar10 fetches the real images.
#include "examples/models/dcgan.h"

#include <CLI/CLI.hpp>
#include <torch/nn/functional/loss.h>

#include <string>

#include <ddprun/ddp.h>
#include <ddprun/training/command_line.h>

namespace {

struct Arguments {
  ddp::TrainingOptions training{
      .epochs = 5, .lr = 0.0002, .loader = {.batch_size = 32}, .checkpoint_dir = "checkpoints/dcgan"};
  models::DcganOptions nets;
  std::string data_dir = CIFAR10_SAMPLE_DIR;
  std::string samples;
};

void declare(CLI::App& app, Arguments& args) {
  ddp::add_options(app, args.training);
  app.add_option("--data-dir", args.data_dir, "Folder with data_batch_*.bin and test_batch.bin")->capture_default_str();
  app.add_option("--noise", args.nets.noise, "Dimension of the noise vector")
      ->check(ddp::whole(1))
      ->capture_default_str();
  app.add_option("--width", args.nets.width, "Channels of the layer at the picture")
      ->check(ddp::whole(1))
      ->capture_default_str();
  app.add_option("--samples", args.samples, "Write pictures into FILE, .safetensors")->type_name("FILE");
}

ddp::optim::AdamOptions adam_options(double lr) {
  return ddp::optim::AdamOptions(lr).betas({0.5, 0.999});
}

// The loss of the discriminator's answers, if it should take the pictures for real ones (1) or for generated ones (0).
torch::Tensor loss_of(const torch::Tensor& logits, double is_real) {
  return torch::nn::functional::binary_cross_entropy_with_logits(logits, torch::full_like(logits, is_real));
}

struct Losses {
  torch::Tensor discriminator, generator;
};

// The backward of each forward runs before the next forward, so that the gradients of both nets are averaged over the
// ranks.
Losses train_step(const torch::Tensor& real, auto& generator, auto& discriminator, auto& generator_optimizer,
                  auto& discriminator_optimizer, int64_t noise_size) {
  const auto noise = torch::randn({real.size(0), noise_size, 1, 1}).to(real.device());
  const auto made = generator(noise);

  discriminator_optimizer.zero_grad();
  const auto loss_real = loss_of(discriminator(real), 1);
  loss_real.backward();
  const auto loss_made = loss_of(discriminator(made.detach()), 0);
  loss_made.backward();  // adds to the gradients of the real pictures
  discriminator_optimizer.step();

  generator_optimizer.zero_grad();
  const auto loss = loss_of(discriminator(made), 1);
  loss.backward();  // the discriminator's gradients of this are dropped by its next zero_grad()
  generator_optimizer.step();
  return {.discriminator = (loss_real + loss_made).detach(), .generator = loss.detach()};
}

// The same noise each time; batch norms with what they have learnt.
torch::Tensor sample(models::Generator& generator, int64_t noise_size, torch::Device device) {
  const torch::NoGradGuard no_grad;
  auto random = at::make_generator<at::CPUGeneratorImpl>(uint64_t{0});
  generator->eval();
  const auto pictures = generator(torch::randn({16, noise_size, 1, 1}, random).to(device));
  generator->train();
  return pictures.cpu() * 0.5 + 0.5;
}

int run(Arguments args) {
  auto& options = args.training;
  const ddp::Normalization normalization{.mean = {0.5F, 0.5F, 0.5F}, .stddev = {0.5F, 0.5F, 0.5F}};
  const ddp::Cifar10 train(args.data_dir, ddp::Cifar10::Split::kTrain, normalization);
  auto group = ddp::init_process_group(options.process_group);
  ddp::install_stop_handlers();
  ddp::print_on_main(group, ddp::describe_job(group, options.loader.batch_size, 1));
  ddp::manual_seed(options.seed = ddp::seed_of_run(options, group), group);

  models::Generator generator(args.nets);
  models::Discriminator discriminator(args.nets);
  generator->to(group.device());
  discriminator->to(group.device());
  ddp::DistributedDataParallel generator_model(generator, group);
  ddp::DistributedDataParallel discriminator_model(discriminator, group);
  ddp::optim::Adam generator_optimizer(generator->parameters(), adam_options(options.lr));
  ddp::optim::Adam discriminator_optimizer(discriminator->parameters(), adam_options(options.lr));
  ddp::DistributedSampler sampler(train.size(), group, {.seed = options.seed});
  options.loader.drop_last = true;
  ddp::DeviceLoader loader(train, sampler, group.device(), options.loader);

  ddp::CheckpointManager checkpoints(options.checkpoint_dir, group, {.keep_last = 2});
  ddp::TrainingState state{
      .model = {{"generator", generator}, {"discriminator", discriminator}},
      .optimizers = {{"generator", generator_optimizer}, {"discriminator", discriminator_optimizer}},
      .shared = {{"generator_buckets", generator_model->bucket_layout()},
                 {"discriminator_buckets", discriminator_model->bucket_layout()}}};
  state.values.set("seed", options.seed);
  const auto start = ddp::start_run(checkpoints, state, group, options.resume);

  options.recorder.steps_done = start.step * loader.size();
  ddp::RunRecorder recorder(group, discriminator_optimizer, options.recorder);
  for (auto epoch = start.step; epoch < options.epochs; ++epoch) {
    sampler.set_epoch(epoch);
    recorder.begin_epoch(epoch, loader.size());
    ddp::Average generator_loss;
    for (const auto& batch : loader) {
      const auto losses = train_step(batch.data, generator_model, discriminator_model, generator_optimizer,
                                     discriminator_optimizer, args.nets.noise);
      generator_loss.update(losses.generator, batch.data.size(0));
      recorder.step(losses.discriminator, batch.data.size(0));
    }
    recorder.images("pictures", sample(generator, args.nets.noise, group.device()));
    recorder.end_epoch({{"generator_loss", generator_loss.compute(group)}});
    checkpoints.save(epoch + 1, state);
    if (epoch + 1 == options.epochs || !ddp::stop_requested(group)) continue;
    ddp::print_on_main(group, "stopped on request: continue with --resume");
    return ddp::kSavedAndStopped;
  }
  if (!args.samples.empty() && group.rank() == 0) {
    ddp::save_safetensors(args.samples, {{"pictures", sample(generator, args.nets.noise, group.device())}});
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) try {
  CLI::App app("Trains a DCGAN on CIFAR-10 images with data parallel training.");
  Arguments args;
  declare(app, args);
  CLI11_PARSE(app, argc, argv);
  return run(args);
} catch (const std::exception& error) {
  return ddp::report(error);
}

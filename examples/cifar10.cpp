// Trains a LeNet-like network on CIFAR-10 images with one process per device: sharded data, averaged gradients, exact
// validation over all ranks, a checkpoint per epoch, resume.
//
//   ddprun --nproc_per_node=2 build/release/bin/cifar10 --lr 0.01 --momentum 0.9
//   ddprun --nproc_per_node=2 build/release/bin/cifar10 --lr 0.01 --momentum 0.9 --epochs 10 --resume
//   build/release/bin/cifar10 --data-dir cifar-10-batches-bin                     one process, no launcher
//   ddprun --nproc_per_node=2 build/release/bin/cifar10 --tensorboard runs/cifar10     then: tensorboard --logdir runs
//   ddprun --nproc_per_node=2 build/release/bin/cifar10 --amp bf16                 mixed precision; and --opt-level
//   torchrun --no-python --nproc_per_node=2 build/release/bin/cifar10
//
// The default data is the sample that comes with the project; scripts/get_cifar10 fetches the real images.
#include <CLI/CLI.hpp>
#include <torch/nn/functional/loss.h>
#include <torch/optim/sgd.h>

#include <optional>
#include <string>

#include <ddprun/ddp.h>
#include <ddprun/training/command_line.h>

#include "examples/models/lenet.h"

namespace {

struct Arguments {
  ddp::TrainingOptions training{
      .epochs = 5, .lr = 0.001, .loader = {.batch_size = 16}, .checkpoint_dir = "checkpoints/cifar10"};
  ddp::amp::Options precision;
  std::string data_dir = CIFAR10_SAMPLE_DIR;
  std::string pretrained, step_losses;
  int64_t accumulate = 1;
  double momentum = 0.0;
  bool augment = true;
};

void declare(CLI::App& app, Arguments& args) {
  ddp::add_options(app, args.training);
  ddp::add_options(app, args.precision);
  app.add_option("--data-dir", args.data_dir, "Folder with data_batch_*.bin and test_batch.bin")->capture_default_str();
  app.add_option("--momentum", args.momentum, "Momentum of SGD (resumed: the checkpoint's)")
      ->check(ddp::finite(0))
      ->capture_default_str();
  app.add_option("--accumulate", args.accumulate, "Backward passes per optimizer step")
      ->check(ddp::whole(1))
      ->capture_default_str();
  app.add_flag("--augment,!--no-augment", args.augment, "Crop and mirror images at random (default: on)");
  app.add_option("--pretrained", args.pretrained, "Start from these weights (safetensors or .pt)")
      ->type_name("FILE")
      ->excludes("--resume");
  app.add_option("--step-losses", args.step_losses, "Write each pass's loss into FILE, .csv or .jsonl")
      ->type_name("FILE")
      ->check(ddp::metrics_file());
}

void train_epoch(auto& model, auto& loader, auto& optimizer, auto& amp, ddp::RunRecorder& recorder,
                 const Arguments& args, ddp::MetricsFile& losses, const ddp::GroupHandle& group) {
  int64_t pass = 0;
  for (const auto& batch : loader) {
    const auto update = ddp::update_part(pass++, loader.size(), args.accumulate);
    if (update.is_first) optimizer.zero_grad();
    if (recorder.steps_done() == 0) recorder.images("images", batch.data * 0.5 + 0.5);  // as the network sees them
    std::optional<ddp::NoSyncGuard> local_only;  // gradients are exchanged once per update, in its last pass
    if (!update.is_last) local_only.emplace(model->no_sync());
    torch::Tensor loss;
    {
      const auto autocast = amp.autocast();
      loss = torch::nn::functional::cross_entropy(model(batch.data), batch.target);
    }
    amp.scale_loss(loss / update.passes, optimizer, {.delay_unscale = !update.is_last}).backward();
    if (update.is_last) amp.step(optimizer);
    recorder.step(loss, batch.target.size(0));
    if (args.step_losses.empty()) continue;  // what follows is a collective
    losses.write({{"step", recorder.steps_done()}, {"loss", ddp::reduce_tensor(loss, group).template item<double>()}});
  }
}

auto validate(models::LeNet& net, auto& model, const ddp::Cifar10& test, ddp::ProcessGroup& group) {
  ddp::Accuracy accuracy;
  for (const auto& batch : ddp::evaluate(net, test, group)) accuracy.update(model(batch.data), batch.target);
  const auto counts = accuracy.counts(group);
  return ddp::ratio_metric("accuracy", counts.right[0], counts.samples);
}

// What was asked for comes before what was saved.
void apply(const CLI::App& app, const Arguments& args, torch::optim::SGD& optimizer) {
  for (auto& parameters : optimizer.param_groups()) {
    auto& sgd = static_cast<torch::optim::SGDOptions&>(parameters.options());
    if (app.count("--lr") > 0) sgd.lr(args.training.lr);
    if (app.count("--momentum") > 0) sgd.momentum(args.momentum);
  }
}

int run(const CLI::App& app, Arguments args) {
  auto& options = args.training;
  const ddp::Normalization normalization{.mean = {0.5F, 0.5F, 0.5F}, .stddev = {0.5F, 0.5F, 0.5F}};
  const ddp::Cifar10 train(args.data_dir, ddp::Cifar10::Split::kTrain, normalization);
  const ddp::Cifar10 test(args.data_dir, ddp::Cifar10::Split::kTest, normalization);

  auto group = ddp::init_process_group(options.process_group);
  ddp::install_stop_handlers();  // TERM, INT and USR1 end the run after the epoch, saved
  ddp::print_on_main(group, ddp::describe_job(group, options.loader.batch_size, args.accumulate));
  if (args.precision.enabled) {
    ddp::print_on_main(group, "mixed precision: ", app["--amp"]->as<std::string>(), ", level ",
                       args.precision.opt_level);
  }
  ddp::print_on_main(group, "dataset ", args.data_dir, ": ", train.size(), " training and ", test.size(),
                     " validation images");

  ddp::manual_seed(options.seed = ddp::seed_of_run(options, group), group);
  models::LeNet net;
  net->to(group.device());
  if (!args.pretrained.empty()) ddp::load_weights(args.pretrained, net, group);
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(options.lr).momentum(args.momentum));
  args.precision.group = group.handle();
  const auto amp = ddp::amp::initialize(net, optimizer, args.precision);
  auto mixed = amp.model(net);
  ddp::DistributedDataParallel model(mixed, group);

  const ddp::AugmentedImages images(train,
                                    {.padding = args.augment ? 4 : 0, .flip = args.augment, .seed = options.seed});
  ddp::DistributedSampler sampler(train.size(), group, {.seed = options.seed});
  ddp::DeviceLoader loader(images, sampler, group.device(), options.loader);

  ddp::CheckpointManager checkpoints(options.checkpoint_dir, group);
  ddp::TrainingState state{.model = net, .optimizer = optimizer, .shared = {{"buckets", model->bucket_layout()}}};
  state.values.set("seed", options.seed);
  const auto masters = amp.properties().master_weights ? amp.fp32_state(net) : nullptr;
  if (masters) state.model = *masters;  // saved in place of their 16-bit copies
  if (args.precision.enabled) state.scaler = amp;
  const auto start = ddp::start_run(checkpoints, state, group, options.resume);
  apply(app, args, optimizer);
  options.recorder.steps_done = start.step * loader.size();
  ddp::RunRecorder recorder(group, optimizer, options.recorder);
  ddp::MetricsFile losses(args.step_losses, group, {.append = start.step > 0});
  losses.drop_from("step", options.recorder.steps_done + 1);
  for (auto epoch = start.step; epoch < options.epochs; ++epoch) {
    sampler.set_epoch(epoch);
    recorder.begin_epoch(epoch, loader.size());
    train_epoch(model, loader, optimizer, amp, recorder, args, losses, group);
    const auto validation = validate(net, mixed, test, group);
    recorder.weights(net);
    recorder.end_epoch({validation});
    // Named by the number of finished epochs, which is the epoch to continue with.
    checkpoints.save(epoch + 1, state,
                     {.metrics = {{"loss", recorder.mean_loss()}, {validation.name, validation.value}}});
    if (epoch + 1 == options.epochs || !ddp::stop_requested(group)) continue;
    ddp::print_on_main(group, "stopped on request: continue with --resume");
    return ddp::kSavedAndStopped;
  }
  recorder.write_hparams({{"lr", options.lr}, {"momentum", args.momentum}, {"batch_size", options.loader.batch_size}});
  return 0;
}

}  // namespace

int main(int argc, char** argv) try {
  CLI::App app("Trains a LeNet-like network on CIFAR-10 images with data parallel training.");
  Arguments arguments;
  declare(app, arguments);
  CLI11_PARSE(app, argc, argv);
  return run(app, arguments);
} catch (const std::exception& error) {
  return ddp::report(error);
}

// Trains a 3D U-Net to find something in volumes (NIfTI files): SyncBatchNorm, then mixed precision, then
// DistributedDataParallel, each made of what the one before left; exact Dice and IoU over all ranks.
//
//   python3 examples/unet3d/make_volumes.py volumes                              volumes to try it out with
//   ddprun -n 2 build/release/bin/unet3d --data-dir volumes
//   ddprun -n 2 build/release/bin/unet3d --data-dir volumes --amp bf16 --opt-level O1 --resume
//   build/release/bin/unet3d --data-dir volumes                                  one process, no launcher
//   torchrun --no-python --nproc_per_node=2 build/release/bin/unet3d --data-dir volumes
//   srun -n 2 build/release/bin/unet3d --data-dir volumes                        or mpirun -n 2
//
// --data-dir has imagesTr, labelsTr, imagesVal and labelsVal, files of equal names; labels are 0 and 1.
#include "examples/models/unet3d.h"

#include <CLI/CLI.hpp>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <ddprun/comm/collectives.h>
#include <ddprun/comm/process_group.h>
#include <ddprun/ddp.h>
#include <ddprun/training/command_line.h>

namespace {

struct Arguments {
  ddp::TrainingOptions training{.epochs = 20,
                                .lr = 0.001,
                                .loader = {.batch_size = 2},
                                .checkpoint_dir = "checkpoints/unet3d",
                                .recorder = {.tensorboard = "runs/unet3d"}};
  ddp::amp::Options precision;
  std::string data_dir, step_losses;
  int64_t width = 16, size = 0, warmup_epochs = 1;
  std::vector<int64_t> milestones = {12, 16};
  bool sync_bn = true, augment = true, recompute = false;
};

void declare(CLI::App& app, Arguments& args) {
  ddp::add_options(app, args.training);
  app.get_option("--lr")->description("Learning rate per rank (resumed: the checkpoint's)");
  ddp::add_options(app, args.precision);
  app.add_option("--data-dir", args.data_dir, "Folder with imagesTr, labelsTr, imagesVal, ...")->required();
  app.add_option("--size", args.size, "Side of cropped cubes (default: whole volumes)")->check(ddp::whole(1));
  app.add_option("--width", args.width, "Channels at full resolution")->check(ddp::whole(1))->capture_default_str();
  app.add_option("--warmup-epochs", args.warmup_epochs, "Epochs of learning-rate warmup")
      ->check(ddp::whole(0, 1'000'000'000))
      ->capture_default_str();
  app.add_option("--milestones", args.milestones, "Epochs after which --lr is divided by 10")
      ->delimiter(',')
      ->trigger_on_parse()  // given twice, the last one counts
      ->check(ddp::whole(1, 1'000'000'000))
      ->capture_default_str();
  app.add_flag("--recompute", args.recompute, "Recompute the blocks in backward to save memory");
  app.add_flag("--syncBN,!--no-syncBN", args.sync_bn, "Synchronize batch norm (default: on)");
  app.add_flag("--augment,!--no-augment", args.augment, "Mirror, and crop at random (default: on)");
  app.add_option("--step-losses", args.step_losses, "Write each step's loss into FILE, .csv or .jsonl")
      ->type_name("FILE")
      ->check(ddp::metrics_file());
}

ddp::Volumes volumes(const Arguments& args, const std::string& part, bool augment) {
  const std::filesystem::path root(args.data_dir);
  return ddp::Volumes(
      ddp::list_volume_pairs(root / ("images" + part), root / ("labels" + part)),
      {.size = {args.size, args.size, args.size}, .augment = augment, .classes = 2, .seed = args.training.seed});
}

// Up to all ranks' rate from one rank's, then down by 10 at each milestone; a step per batch.
ddp::schedules::Schedule schedule(const Arguments& args, int64_t steps_per_epoch, int ranks) {
  std::vector<int64_t> milestones;
  for (const auto epoch : args.milestones) milestones.push_back(epoch * steps_per_epoch);
  std::vector<ddp::schedules::Schedule> parts;
  if (args.warmup_epochs > 0) {
    parts.push_back(ddp::schedules::linear_warmup(args.warmup_epochs * steps_per_epoch, ranks));
  }
  parts.push_back(ddp::schedules::multi_step({.milestones = milestones}));
  return ddp::schedules::chained(std::move(parts));
}

// The middle slices (N, 1, H, 3 W) of the volumes, their labels and what the net finds, side by side, for TensorBoard.
torch::Tensor slices(const ddp::Batch& batch, const torch::Tensor& found) {
  const auto image = batch.data.select(2, batch.data.size(2) / 2);
  const auto label = batch.target.select(1, batch.target.size(1) / 2).unsqueeze(1).to(torch::kFloat);
  const auto shown = (image - image.min()) / (image.max() - image.min()).clamp_min(1e-6);
  return torch::cat({shown, label, found.select(2, found.size(2) / 2)}, 3);
}

std::vector<ddp::EpochMetric> validate(models::UNet3d& net, auto& model, const ddp::Volumes& dataset,
                                       const ddp::GroupHandle& group, ddp::RunRecorder& recorder) {
  ddp::ConfusionMatrix voxels(2);
  ddp::Average loss;
  bool is_first = true;
  for (const auto& batch : ddp::evaluate(net, dataset, group, {.batch_size = 2})) {
    const auto logits = model(batch.data);
    const auto found = torch::sigmoid(logits.to(torch::kFloat));
    loss.update(models::bce_dice_loss(logits, batch.target), batch.data.size(0));
    voxels.update((found > 0.5).squeeze(1).to(torch::kLong), batch.target);
    if (std::exchange(is_first, false)) recorder.images("validation/image, label, found", slices(batch, found));
  }
  const auto counts = voxels.compute(group);
  return {{.name = "loss", .value = loss.compute(group)},
          {.name = "dice", .value = counts.dice()[1]},
          {.name = "iou", .value = counts.iou()[1]}};
}

torch::Tensor train_on(const ddp::Batch& batch, auto& model, const ddp::amp::Amp& amp, ddp::optim::Adam& optimizer) {
  optimizer.zero_grad();
  torch::Tensor loss;
  {
    const auto autocast = amp.autocast();
    loss = models::bce_dice_loss(model(batch.data), batch.target);
  }
  amp.scale_loss(loss, optimizer).backward();
  amp.step(optimizer);
  return loss.detach();
}

int run(Arguments args) {
  auto& options = args.training;
  auto group = ddp::init_process_group(options.process_group);
  ddp::install_stop_handlers();
  ddp::print_on_main(group, ddp::describe_job(group, options.loader.batch_size));
  options.lr *= group.size();
  ddp::manual_seed(options.seed = ddp::seed_of_run(options, group), group);

  const auto train = volumes(args, "Tr", args.augment);
  const auto validation = volumes(args, "Val", false);
  ddp::print_on_main(group, train.size(), " volumes for training, ", validation.size(), " for validation");
  ddp::DistributedSampler sampler(train.size(), group, {.seed = options.seed});
  ddp::DeviceLoader loader(train, sampler, group.device(), options.loader);

  models::UNet3d net(models::UNet3dOptions{.width = args.width, .recompute = args.recompute});
  net->to(group.device());
  ddp::optim::Adam optimizer(net->parameters(), ddp::optim::AdamOptions(options.lr));
  // In this order: another one is refused.
  if (args.sync_bn) ddp::convert_sync_batchnorm(net, group);
  args.precision.group = group.handle();
  const auto amp = ddp::amp::initialize(net, optimizer, args.precision);
  auto mixed = amp.model(net);
  ddp::DistributedDataParallel model(mixed, group);

  const int64_t steps_per_epoch = loader.size();
  ddp::optim::LrScheduler scheduler(optimizer, schedule(args, steps_per_epoch, group.size()));
  ddp::CheckpointManager checkpoints(options.checkpoint_dir, group, {.keep_last = 2});
  ddp::TrainingState state{.model = net, .optimizer = optimizer, .schedule = scheduler};
  state.shared = {{"buckets", model->bucket_layout()}};
  state.values.set("seed", options.seed);
  const auto masters = amp.properties().master_weights ? amp.fp32_state(net) : nullptr;
  if (masters) state.model = *masters;  // saved in place of their 16-bit copies
  if (args.precision.enabled) state.scaler = amp;
  const auto start = ddp::start_run(checkpoints, state, group, options.resume);
  options.recorder.steps_done = start.step * steps_per_epoch;
  ddp::RunRecorder recorder(group, optimizer, options.recorder);
  ddp::MetricsFile losses(args.step_losses, group, {.append = start.step > 0});
  losses.drop_from("epoch", start.step);

  for (auto epoch = start.step; epoch < options.epochs; ++epoch) {
    sampler.set_epoch(epoch);
    recorder.begin_epoch(epoch, steps_per_epoch);
    for (const auto& batch : loader) {
      const auto loss = train_on(batch, model, amp, optimizer);
      scheduler.step();
      recorder.step(loss, batch.data.size(0));
      if (!args.step_losses.empty()) {
        const auto of_all = ddp::reduce_tensor(loss, group).item<double>();
        losses.write({{"epoch", epoch}, {"step", recorder.steps_done()}, {"loss", of_all}});
      }
    }
    const auto metrics = validate(net, mixed, validation, group, recorder);
    state.values.set("epoch", epoch);
    recorder.end_epoch(metrics);
    checkpoints.save(epoch + 1, state, {.metrics = {{"dice", metrics[1].value}}});
    if (epoch + 1 < options.epochs && ddp::stop_requested(group)) return ddp::kSavedAndStopped;
  }
  ddp::save_checkpoint(std::filesystem::path(options.checkpoint_dir) / "unet3d.safetensors", {.model = net}, group);
  return 0;
}

}  // namespace

int main(int argc, char** argv) try {
  CLI::App app("Trains a 3D U-Net with data parallel training.");
  Arguments args;
  declare(app, args);
  CLI11_PARSE(app, argc, argv);
  return run(args);
} catch (const std::exception& error) {
  return ddp::report(error);
}

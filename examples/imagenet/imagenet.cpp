// Trains AlexNet, VGG-16, GoogLeNet, Inception v3 or a ResNet on ImageNet, or on made-up pictures, in each of the ways
// in which several devices are used, and tells what an epoch takes.
//
//   ddprun -n 8 build/release/bin/imagenet --data-dir imagenet --net resnet50 --amp bf16
//   ddprun -n 2 build/release/bin/imagenet --synthetic 64 --net googlenet --batch-size 8
//   ddprun -n 2 build/release/bin/imagenet --synthetic 64 --parallel apex --amp bf16 --opt-level O2
//   ddprun -n 2 build/release/bin/imagenet --synthetic 64 --parallel horovod
//   build/release/bin/imagenet --synthetic 64 --parallel dp                      one process, all devices
//   torchrun --no-python --nproc_per_node=2 build/release/bin/imagenet --synthetic 64
//   srun -n 2 build/release/bin/imagenet --synthetic 64                          or mpirun -n 2
#include <CLI/CLI.hpp>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include <ddprun/ddp.h>
#include <ddprun/training/command_line.h>

#include "examples/imagenet/parallel_step.h"
#include "examples/models/image_models.h"

namespace {

struct Arguments {
  ddp::TrainingOptions training{
      .epochs = 90, .lr = 0.1, .loader = {.batch_size = 32, .workers = 4}, .checkpoint_dir = "checkpoints/imagenet"};
  ddp::amp::Options precision;
  std::string data_dir, weights, step_losses, net = "resnet50", parallel = "ddp";
  int64_t synthetic = 0, classes = 1000, image_size = 0;
  int replicas = 2;
  bool sync_bn = false, augment = true, transform_input = false;
};

void declare(CLI::App& app, Arguments& args) {
  ddp::add_options(app, args.training);
  ddp::add_options(app, args.precision);
  const auto option = [&app](const char* name, auto& value, const char* help) {
    return app.add_option(name, value, help)->capture_default_str();
  };
  auto* data = option("--data-dir", args.data_dir, "Folder with train and val, a folder per class");
  auto* synthetic = app.add_option("--synthetic", args.synthetic, "Train on this number of synthetic pictures");
  synthetic->check(ddp::whole(1))->excludes(data);
  option("--classes", args.classes, "Number of classes of synthetic pictures")->check(ddp::whole(1, 1'000'000));
  option("--net", args.net, "alexnet, vgg16, googlenet, inception_v3, resnet*");
  option("--parallel", args.parallel, "How to use several devices")
      ->check(CLI::IsMember({"none", "dp", "ddp", "horovod", "apex"}));
  option("--replicas", args.replicas, "With dp, on a CPU: copies of the net")->check(ddp::whole(1));
  option("--image-size", args.image_size, "Height and width (0: the net's usual ones)")->check(ddp::whole(0, 4096));
  option("--weights", args.weights, "Start from these weights, .pth or .safetensors");
  option("--step-losses", args.step_losses, "File for each step's loss, .csv or .jsonl")->check(ddp::metrics_file());
  app.add_flag("--transform-input", args.transform_input, "For torchvision's googlenet and inception_v3");
  app.add_flag("--syncBN", args.sync_bn, "Synchronize batch norm over all ranks");
  app.add_flag("--augment,!--no-augment", args.augment, "Crop and mirror at random (default: on)");
}

struct Data {
  ddp::AnyDataset train, validation;
  int64_t classes;
};

Data open_data(const Arguments& args) {
  const uint64_t seed = args.training.seed;
  if (args.synthetic > 0) {
    const auto pictures = [&](int64_t first, int64_t size) {
      return ddp::SyntheticImages({.size = size,
                                   .first = first,
                                   .height = args.image_size,
                                   .width = args.image_size,
                                   .classes = args.classes,
                                   .seed = seed});
    };
    return {pictures(0, args.synthetic), pictures(args.synthetic, (args.synthetic + 7) / 8), args.classes};
  }
  const std::filesystem::path root(args.data_dir);
  const auto train = ddp::list_image_folder(root / "train");
  const int64_t shorter_side = args.image_size * 256 / 224;
  return {
      ddp::ImageFolder(train,
                       {.size = args.image_size, .augment = args.augment, .shorter_side = shorter_side, .seed = seed}),
      ddp::ImageFolder(ddp::list_image_folder(root / "val"), {.size = args.image_size, .shorter_side = shorter_side}),
      std::ssize(train.class_names)};
}

// All ranks' images per second.
double train_epoch(const ParallelStep& step, auto& loader, auto& optimizer, ddp::RunRecorder& recorder,
                   ddp::MetricsFile* losses, int64_t epoch, const ddp::GroupHandle& group) {
  ddp::Throughput throughput;
  for (const auto& batch : loader) {
    optimizer.zero_grad();
    const auto loss = models::classification_loss(step.forward(batch.data), batch.target);
    step.update(loss);
    recorder.step(loss.detach(), batch.target.size(0));
    throughput.update(batch.target.size(0));
    if (losses == nullptr) continue;
    const auto of_all = ddp::reduce_tensor(loss, group).template item<double>();
    losses->write({{"epoch", epoch}, {"step", recorder.steps_done()}, {"loss", of_all}});
  }
  static_cast<void>(recorder.mean_loss());  // waits for the device
  return throughput.compute(group);
}

std::vector<ddp::EpochMetric> validate(torch::nn::Module& net, auto& model, const Data& data,
                                       const ddp::GroupHandle& group) {
  ddp::Accuracy accuracy({1, std::min(data.classes, int64_t{5})});
  for (const auto& batch : ddp::evaluate(net, data.validation, group)) {
    accuracy.update(model(batch.data), batch.target);
  }
  const auto counts = accuracy.counts(group);
  return {ddp::ratio_metric("accuracy", counts.right[0], counts.samples),
          ddp::ratio_metric("accuracy_top_5", counts.right[1], counts.samples)};
}

void load_weights(models::ImageClassifier& net, const Arguments& args, const ddp::GroupHandle& group) {
  if (args.weights.empty()) return;
  ddp::load_weights(args.weights, net, group);
  if (!models::has_input_transform(args.net) || args.transform_input) return;
  ddp::print_on_main(group, "note: weights of ", args.net, " that torchvision has trained need --transform-input");
}

int run(Arguments args) {
  auto& options = args.training;
  auto group = ddp::init_process_group(options.process_group);
  ddp::install_stop_handlers();
  ddp::manual_seed(options.seed = ddp::seed_of_run(options, group), group);
  if (group.size() > 1 && (args.parallel == "none" || args.parallel == "dp")) {
    throw std::invalid_argument("--parallel " + args.parallel + " is for one process, this job has " +
                                std::to_string(group.size()) + ": ddp, horovod and apex are for several");
  }
  args.image_size = models::image_size_of(args.net, args.image_size);
  const auto data = open_data(args);
  ddp::print_on_main(group, ddp::describe_job(group, options.loader.batch_size), ", ", args.net, ", parallel ",
                     args.parallel);
  ddp::DistributedSampler sampler(data.train.size(), group, {.seed = options.seed});
  ddp::DeviceLoader loader(data.train, sampler, group.device(), options.loader);

  const auto make_net = [&] { return models::make_image_model(args.net, data.classes, args.transform_input); };
  const auto net = make_net();
  net->to(group.device());
  load_weights(*net, args, group);
  if (args.sync_bn) ddp::convert_sync_batchnorm(net, group);
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(options.lr).momentum(0.9).weight_decay(1e-4));
  args.precision.group = group.handle();
  const auto horovod = make_horovod_optimizer(args.parallel, *net, optimizer, group);
  const auto amp = ddp::amp::initialize(net, optimizer, args.precision);
  auto step = make_parallel_step(args.parallel, net, optimizer, amp, horovod, group,
                                 {.replicas = args.replicas, .make_replica = make_net});
  auto mixed = amp.model(net);

  ddp::optim::LrScheduler scheduler(optimizer, ddp::schedules::step({.step_size = 30}));
  ddp::CheckpointManager checkpoints(options.checkpoint_dir, group, {.keep_last = 2});
  ddp::TrainingState state{.model = net, .optimizer = optimizer, .schedule = scheduler, .shared = step.shared};
  state.values.set("seed", options.seed);
  const auto masters = amp.properties().master_weights ? amp.fp32_state(net) : nullptr;
  if (masters) state.model = *masters;  // saved in place of their 16-bit copies
  if (args.precision.enabled) state.scaler = amp;
  const auto start = ddp::start_run(checkpoints, state, group, options.resume);
  options.recorder.steps_done = start.step * loader.size();
  ddp::RunRecorder recorder(group, optimizer, options.recorder);
  ddp::MetricsFile losses(args.step_losses, group, {.append = start.step > 0});
  losses.drop_from("epoch", start.step);

  for (auto epoch = start.step; epoch < options.epochs; ++epoch) {
    sampler.set_epoch(epoch);
    recorder.begin_epoch(epoch, loader.size());
    const auto begin = std::chrono::steady_clock::now();
    const double rate =
        train_epoch(step, loader, optimizer, recorder, args.step_losses.empty() ? nullptr : &losses, epoch, group);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    scheduler.step();

    const auto metrics = validate(*net, mixed, data, group);
    recorder.end_epoch(metrics);
    checkpoints.save(epoch + 1, state, {.metrics = {{metrics[0].name, metrics[0].value}}});
    const auto rounded = [](double value) { return std::round(value * 100) / 100; };
    ddp::print_on_main(group, "epoch ", epoch, ": ", rounded(seconds.count()), " s, ", rounded(rate), " images/s");
    if (epoch + 1 < options.epochs && ddp::stop_requested(group)) return ddp::kSavedAndStopped;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) try {
  CLI::App app("Trains a net for ImageNet, and prints the time of each epoch.");
  Arguments args;
  declare(app, args);
  CLI11_PARSE(app, argc, argv);
  if (args.data_dir.empty() && args.synthetic == 0) throw std::invalid_argument("give --data-dir or --synthetic");
  return run(args);
} catch (const std::exception& error) {
  return ddp::report(error);
}

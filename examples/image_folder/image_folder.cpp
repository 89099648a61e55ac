// Trains a ResNet on a folder of pictures, a sub-folder per class: the flower-classification program, with one process
// per device. From torchvision's weights or from the beginning, all layers or the last one alone.
//
//   ddprun -n 2 build/release/bin/image_folder --data-path flower_photos --weights resnet34.pth [--freeze-layers]
//   ddprun -n 2 build/release/bin/image_folder --data-path flower_photos --syncBN --resume
//   build/release/bin/image_folder --data-path flower_photos                     one process, no launcher
//   torchrun --no-python --nproc_per_node=2 build/release/bin/image_folder --data-path flower_photos
//   srun -n 2 build/release/bin/image_folder --data-path flower_photos           or mpirun -n 2
#include <CLI/CLI.hpp>
#include <torch/nn/functional/loss.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <numbers>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>

#include <ddprun/comm/collectives.h>
#include <ddprun/comm/process_group.h>
#include <ddprun/ddp.h>
#include <ddprun/training/command_line.h>

#include "examples/models/resnet.h"

namespace {

using Net = std::shared_ptr<models::ImageClassifier>;

struct Arguments {
  ddp::TrainingOptions training{.epochs = 30,
                                .lr = 0.001,
                                .loader = {.batch_size = 16, .drop_last = true},
                                .checkpoint_dir = "checkpoints/image_folder",
                                .recorder = {.tensorboard = "runs/image_folder"}};
  std::string data_path, weights, step_losses, net = "resnet34", weights_dir = "weights";
  double lrf = 0.1, validation_ratio = 0.2;
  int64_t image_size = 224;
  bool freeze_layers = false, sync_bn = false, augment = true;
};

void declare(CLI::App& app, Arguments& args) {
  ddp::add_options(app, args.training);
  app.get_option("--lr")->description("Learning rate per rank (resumed: the checkpoint's)");
  app.remove_option(app.get_option("--metrics"));  // --step-losses and TensorBoard tell more
  const auto option = [&app](const char* name, auto& value, const char* help) {
    return app.add_option(name, value, help)->capture_default_str();
  };
  option("--dist-url", args.training.process_group.init_method, "Address of the rendezvous (default: env://)");
  option("--data-path", args.data_path, "Folder with a folder of pictures per class")->required();
  option("--val-ratio", args.validation_ratio, "Fraction of each class for validation")->check(ddp::finite(0, 1));
  option("--net", args.net, "resnet18, resnet34 or resnet50");
  option("--weights", args.weights, "Start from these weights, .pth or .safetensors");
  option("--weights-dir", args.weights_dir, "Folder for the weights of each epoch")->check(ddp::output_folder());
  option("--lrf", args.lrf, "Last learning rate divided by the first")->check(ddp::finite(0));
  option("--image-size", args.image_size, "Height and width of the net's input")->check(ddp::whole(16, 4096));
  option("--step-losses", args.step_losses, "File for each step's loss, .csv or .jsonl")->check(ddp::metrics_file());
  app.add_flag("--freeze-layers", args.freeze_layers, "Train the classifier alone");
  app.add_flag("--syncBN", args.sync_bn, "Synchronize batch norm over all ranks");
  app.add_flag("--augment,!--no-augment", args.augment, "Crop and mirror at random (default: on)");
}

// Prints whether this process joins a job, where, and with which rank, in the words of the Python program.
void print_position(const ddp::ProcessGroupOptions& options) {
  const auto place = options.rank_info.value_or(ddp::rank_info_from_environment());
  const bool is_alone = place.source == ddp::RankInfo().source && options.init_method.empty();
  const std::string joining = "| distributed init (rank " + std::to_string(place.rank) +
                              "): " + (options.init_method.empty() ? "env://" : options.init_method);
  std::puts(is_alone ? "Not using distributed mode" : joining.c_str());
  std::fflush(stdout);
}

// Returns a net with the file's weights, without its classifier if the number of classes differs; without a file, a net
// with rank 0's initial weights, which the other ranks read from a checkpoint.
Net make_net(const Arguments& args, int64_t classes, const ddp::GroupHandle& group) {
  const Net net = models::make_resnet(args.net, {.num_classes = classes});
  net->to(group.device());
  if (!args.weights.empty()) {
    const auto found = ddp::load_weights(args.weights, net, group, {.strict = false, .skip_other_shapes = true});
    ddp::print_on_main(group, "weights of ", args.weights, ", without ", found.missing.size(), " that do not fit");
  } else {
    const auto initial = std::filesystem::path(args.training.checkpoint_dir) / "initial_weights.safetensors";
    ddp::save_checkpoint(initial, {.model = net}, group);  // rank 0 writes, the others wait for it
    ddp::load_checkpoint(initial, {.model = net}, group);  // each to its own device
    if (group.rank() == 0) std::filesystem::remove(initial);
  }
  if (args.freeze_layers) ddp::freeze_all_but(net, {"fc"});
  if (args.sync_bn && !args.freeze_layers) ddp::convert_sync_batchnorm(net, group);
  return net;
}

// The mean loss over all ranks; nothing where a loss was not finite.
std::optional<double> train_one_epoch(auto& model, auto& loader, auto& optimizer, int64_t epoch,
                                      const ddp::GroupHandle& group, ddp::MetricsFile& losses) {
  double mean_loss = 0;
  int64_t step = 0;
  auto loop = ddp::progress(loader, group);
  for (const auto& batch : loop) {
    optimizer.zero_grad();
    const auto loss = torch::nn::functional::cross_entropy(model(batch.data), batch.target);
    loss.backward();
    const double of_all = ddp::reduce_tensor(loss.detach(), group).template item<double>();
    losses.write({{"epoch", epoch}, {"step", step}, {"loss", of_all}});
    if (!std::isfinite(of_all)) {
      std::fprintf(stderr, "WARNING: non-finite loss, ending training: %f in step %lld\n", of_all, step + 0LL);
      return std::nullopt;
    }
    mean_loss += (of_all - mean_loss) / static_cast<double>(++step);
    char text[64];
    std::snprintf(text, sizeof text, "[epoch %lld] mean loss %.3f", static_cast<long long>(epoch), mean_loss);
    loop.bar().set_description(text);
    optimizer.step();
  }
  return mean_loss;
}

void check_sizes(int64_t training, int64_t batches, int64_t validation) {
  if (training == 0) throw std::invalid_argument("no picture for training: choose a smaller --val-ratio");
  if (batches == 0) throw std::invalid_argument("no rank has a full batch: choose a smaller --batch-size");
  if (validation == 0) throw std::invalid_argument("no picture for validation: choose a larger --val-ratio");
}

int run(Arguments args) {
  auto& options = args.training;
  print_position(options.process_group);
  auto group = ddp::init_process_group(options.process_group);
  options.lr *= group.size();  // as many times as many samples per step
  ddp::install_stop_handlers();
  ddp::manual_seed(options.seed = ddp::seed_of_run(options, group), group);
  const auto split = ddp::split_listing(ddp::list_image_folder(args.data_path), args.validation_ratio, options.seed);
  const auto& classes = split.train.class_names;
  if (group.rank() == 0) ddp::write_class_indices("class_indices.json", classes);
  const int64_t shorter_side = args.image_size * 256 / 224;
  const ddp::ImageFolder train(
      split.train,
      {.size = args.image_size, .augment = args.augment, .shorter_side = shorter_side, .seed = options.seed});
  const ddp::ImageFolder validation(split.validation, {.size = args.image_size, .shorter_side = shorter_side});
  ddp::print_on_main(group, train.size(), " pictures for training, ", validation.size(), " for validation, ",
                     classes.size(), " classes");
  ddp::DistributedSampler sampler(train.size(), group, {.seed = options.seed});
  ddp::DeviceLoader loader(train, sampler, group.device(), options.loader);
  check_sizes(train.size(), loader.size(), validation.size());
  std::filesystem::create_directories(args.weights_dir);  // an error ends the program here, before anything can be lost
  ddp::print_on_main(group, "Using ", options.loader.workers, " dataloader workers every process");
  const Net net = make_net(args, std::ssize(classes), group);
  ddp::DistributedDataParallel model(net, group);
  torch::optim::SGD optimizer(ddp::trainable_parameters(net),
                              torch::optim::SGDOptions(options.lr).momentum(0.9).weight_decay(0.005));
  const auto cosine = [epochs = static_cast<double>(options.epochs), lrf = args.lrf](int64_t epoch) {
    return (1 + std::cos(static_cast<double>(epoch) * std::numbers::pi / epochs)) / 2 * (1 - lrf) + lrf;
  };
  ddp::optim::LrScheduler scheduler(optimizer, ddp::schedules::lambda(cosine));
  ddp::CheckpointManager checkpoints(options.checkpoint_dir, group, {.keep_last = 2});
  ddp::TrainingState state{.model = net, .optimizer = optimizer, .schedule = scheduler};
  state.shared = {{"buckets", model->bucket_layout()}};
  state.values.set("seed", options.seed);
  const auto start = ddp::start_run(checkpoints, state, group, options.resume);
  ddp::SummaryWriter tensorboard(options.recorder.tensorboard, group, {.purge_step = start.step});
  ddp::MetricsFile losses(args.step_losses, group, {.append = start.step > 0});
  losses.drop_from("epoch", start.step);
  for (auto epoch = start.step; epoch < options.epochs; ++epoch) {
    sampler.set_epoch(epoch);
    const auto mean_loss = train_one_epoch(model, loader, optimizer, epoch, group, losses);
    if (!mean_loss) return 1;
    scheduler.step();
    ddp::Accuracy accuracy;
    for (const auto& batch : ddp::evaluate(net, validation, group, {.batch_size = options.loader.batch_size})) {
      accuracy.update(net->forward(batch.data), batch.target);
    }
    const double part_right = accuracy.compute(group).front();
    ddp::print_on_main(group, "[epoch ", epoch, "] accuracy: ", std::round(part_right * 1000) / 1000);
    tensorboard.add_scalar("loss", *mean_loss, epoch);
    tensorboard.add_scalar("accuracy", part_right, epoch);
    tensorboard.add_scalar("learning_rate", scheduler.get_last_lr().front(), epoch);
    ddp::save_checkpoint(args.weights_dir + "/model-" + std::to_string(epoch) + ".safetensors", {.model = net}, group);
    checkpoints.save(epoch + 1, state, {.metrics = {{"accuracy", part_right}}});
    if (epoch + 1 < options.epochs && ddp::stop_requested(group)) return ddp::kSavedAndStopped;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) try {
  CLI::App app("Trains a ResNet on a folder of pictures with data parallel training.");
  Arguments args;
  declare(app, args);
  CLI11_PARSE(app, argc, argv);
  if (app.count("--workers") == 0) {
    const int64_t batch = args.training.loader.batch_size, cores = std::thread::hardware_concurrency();
    args.training.loader.workers = static_cast<int>(std::min({cores, batch > 1 ? batch : int64_t{0}, int64_t{8}}));
  }
  return run(args);
} catch (const std::exception& error) {
  return ddp::report(error);
}

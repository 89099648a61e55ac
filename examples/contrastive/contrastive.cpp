// SimCLR (Chen et al. 2020): a net learns pictures without their labels, by finding for one view of a picture the other
// one among the views of all ranks. Gradients flow through the all_gather that collects them, so that N ranks learn
// what one process with N times the batch does.
//
//   ddprun -n 2 build/release/bin/contrastive --epochs 10
//   ddprun -n 2 build/release/bin/contrastive --epochs 20 --resume
//   build/release/bin/contrastive --batch-size 128 --data-dir cifar-10-batches-bin       one process, no launcher
//   ddprun -n 2 build/release/bin/contrastive --tensorboard runs/contrastive             loss and accuracy
//   torchrun --no-python --nproc_per_node=2 build/release/bin/contrastive
//
// The default data is the sample that comes with the project; scripts/get_cifar10 fetches the real images.
#include "examples/models/contrastive.h"

#include <CLI/CLI.hpp>
#include <torch/nn/functional/loss.h>
#include <torch/nn/functional/normalization.h>
#include <torch/nn/functional/upsampling.h>
#include <torch/optim/sgd.h>

#include <limits>
#include <span>
#include <string>
#include <vector>

#include <ddprun/ddp.h>
#include <ddprun/training/command_line.h>

namespace {

namespace F = torch::nn::functional;

struct Arguments {
  ddp::TrainingOptions training{
      .epochs = 10, .lr = 0.02, .loader = {.batch_size = 64}, .checkpoint_dir = "checkpoints/contrastive"};
  std::string data_dir = CIFAR10_SAMPLE_DIR;
  std::string step_losses;
  double momentum = 0.9;
  double temperature = 0.2;
};

void declare(CLI::App& app, Arguments& args) {
  ddp::add_options(app, args.training);
  app.add_option("--data-dir", args.data_dir, "Folder with data_batch_*.bin and test_batch.bin")->capture_default_str();
  app.add_option("--momentum", args.momentum, "Momentum of SGD")->check(ddp::finite(0))->capture_default_str();
  app.add_option("--temperature", args.temperature, "Divides the similarities of views")
      ->check(ddp::above(0))
      ->capture_default_str();
  app.add_option("--step-losses", args.step_losses, "Write each step's loss into FILE, .csv or .jsonl")
      ->type_name("FILE")
      ->check(ddp::metrics_file());
}

// A part of the picture, in the picture's size: torchvision's RandomResizedCrop.
torch::Tensor resized_crop(const torch::Tensor& image, ddp::SampleRandom& random) {
  const int64_t height = image.size(1), width = image.size(2);
  const ddp::Box box = ddp::draw_resized_crop(height, width, random);
  const auto part = image.narrow(1, box.top, box.height).narrow(2, box.left, box.width).unsqueeze(0);
  return F::interpolate(part, F::InterpolateFuncOptions()
                                  .size(std::vector<int64_t>{height, width})
                                  .mode(torch::kBilinear)
                                  .align_corners(false))
      .squeeze(0);
}

torch::Tensor brightness(const torch::Tensor& image, ddp::SampleRandom& random) {
  return image * random.uniform(0.6, 1.4);
}

// Two views of each image, which depend on seed, epoch and the image's index alone, so not on the number of ranks.
class TwoViews {
 public:
  TwoViews(const ddp::Cifar10& images, uint64_t seed)
      : first_(images, views(), {.seed = 2 * seed}), second_(images, views(), {.seed = 2 * seed + 1}) {}

  int64_t size() const { return first_.size(); }

  // All first views, then all second ones: data (2 * indices, 3, 32, 32).
  ddp::Batch get_batch(std::span<const int64_t> indices, int64_t epoch) const {
    const ddp::Batch first = first_.get_batch(indices, epoch);
    return {.data = torch::cat({first.data, second_.get_batch(indices, epoch).data}), .target = first.target};
  }

 private:
  static ddp::transforms::Transform views() {
    return ddp::transforms::compose({resized_crop, ddp::transforms::random_horizontal_flip(), brightness});
  }

  ddp::Transformed<ddp::Cifar10> first_, second_;
};

// Cross entropy of each of this rank's views against the views of all ranks, where the other view of the same picture
// is the right class (SimCLR's NT-Xent): the mean over this rank's views, and no factor. The gradient of all_gather
// sums over the ranks what their losses say about this rank's views, and DistributedDataParallel divides the sum of all
// gradients by the number of ranks: together that is the gradient of the mean over the whole batch.
torch::Tensor contrastive_loss(const torch::Tensor& embeddings, double temperature, const ddp::GroupHandle& group) {
  const auto own = F::normalize(embeddings);
  const auto all = ddp::functional::all_gather(own, group);  // (size * count, …)
  const int64_t count = own.size(0);
  const auto row = torch::arange(count, torch::TensorOptions(torch::kLong).device(own.device()));
  const auto self = row + group.rank() * count;
  const auto other = (row + count / 2).remainder(count) + group.rank() * count;
  const auto similarities = own.mm(all.t()) / temperature;
  return F::cross_entropy(similarities.scatter(1, self.unsqueeze(1), -std::numeric_limits<double>::infinity()), other);
}

// Of images whose nearest neighbour among the training images, of all ranks, has their class. Only here are labels
// read.
ddp::EpochMetric neighbour_accuracy(models::ContrastiveNet& net, const ddp::Cifar10& train, const ddp::Cifar10& test,
                                    const ddp::GroupHandle& group) {
  const auto on_device = torch::TensorOptions(group.device());
  std::vector<torch::Tensor> features{torch::empty({0, models::ContrastiveNetImpl::kFeatures}, on_device)};
  std::vector<torch::Tensor> labels{torch::empty({0}, on_device.dtype(torch::kLong))};  // a rank may have no image
  for (const auto& batch : ddp::evaluate(net, train, group)) {
    features.push_back(F::normalize(net->features(batch.data)));
    labels.push_back(batch.target);
  }
  const auto all_features = torch::cat(ddp::all_gather_uneven(torch::cat(features), group));
  const auto all_labels = torch::cat(ddp::all_gather_uneven(torch::cat(labels), group));
  ddp::Accuracy accuracy;
  for (const auto& batch : ddp::evaluate(net, test, group)) {
    const auto nearest = F::normalize(net->features(batch.data)).mm(all_features.t()).argmax(1);
    accuracy.update(torch::one_hot(all_labels.index_select(0, nearest), 10).to(torch::kFloat), batch.target);
  }
  const auto counts = accuracy.counts(group);
  return ddp::ratio_metric("neighbour_accuracy", counts.right[0], counts.samples);
}

int run(Arguments args) {
  auto& options = args.training;
  const ddp::Cifar10 train(args.data_dir, ddp::Cifar10::Split::kTrain);
  const ddp::Cifar10 test(args.data_dir, ddp::Cifar10::Split::kTest);
  auto group = ddp::init_process_group(options.process_group);
  ddp::install_stop_handlers();
  ddp::print_on_main(group, ddp::describe_job(group, options.loader.batch_size));
  ddp::manual_seed(options.seed = ddp::seed_of_run(options, group), group);

  models::ContrastiveNet net;
  net->to(group.device());
  ddp::DistributedDataParallel model(net, group);
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(options.lr).momentum(args.momentum));
  const TwoViews views(train, options.seed);
  ddp::DistributedSampler sampler(views.size(), group, {.seed = options.seed});
  options.loader.drop_last = true;  // equal batches: the mean of the ranks' means is the mean over all views
  ddp::DeviceLoader loader(views, sampler, group.device(), options.loader);

  ddp::CheckpointManager checkpoints(options.checkpoint_dir, group, {.keep_last = 2});
  ddp::TrainingState state{.model = net, .optimizer = optimizer, .shared = {{"buckets", model->bucket_layout()}}};
  state.values.set("seed", options.seed);
  const auto start = ddp::start_run(checkpoints, state, group, options.resume);
  if (start.step == 0) {
    ddp::print_on_main(group, "untrained: accuracy ", neighbour_accuracy(net, train, test, group).text);
  }
  options.recorder.steps_done = start.step * loader.size();
  ddp::RunRecorder recorder(group, optimizer, options.recorder);
  ddp::MetricsFile losses(args.step_losses, group, {.append = start.step > 0});
  losses.drop_from("step", options.recorder.steps_done + 1);
  for (auto epoch = start.step; epoch < options.epochs; ++epoch) {
    sampler.set_epoch(epoch);
    recorder.begin_epoch(epoch, loader.size());
    for (const auto& batch : loader) {
      if (recorder.steps_done() == 0) recorder.images("views", batch.data.clamp(0, 1));
      optimizer.zero_grad();
      const auto loss = contrastive_loss(model(batch.data), args.temperature, group);
      loss.backward();
      optimizer.step();
      recorder.step(loss, batch.target.size(0));
      if (args.step_losses.empty()) continue;  // what follows is a collective
      losses.write({{"step", recorder.steps_done()}, {"loss", ddp::reduce_tensor(loss, group).item<double>()}});
    }
    recorder.end_epoch({neighbour_accuracy(net, train, test, group)});
    checkpoints.save(epoch + 1, state);
    if (epoch + 1 == options.epochs || !ddp::stop_requested(group)) continue;
    ddp::print_on_main(group, "stopped on request: continue with --resume");
    return ddp::kSavedAndStopped;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) try {
  CLI::App app("Trains a net on CIFAR-10 images without their labels (SimCLR) on several ranks.");
  Arguments args;
  declare(app, args);
  CLI11_PARSE(app, argc, argv);
  return run(args);
} catch (const std::exception& error) {
  return ddp::report(error);
}

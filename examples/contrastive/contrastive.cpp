// SimCLR (Chen et al. 2020): a net learns pictures without their labels, by finding for one view of a picture the other
// one among the views of all ranks. Gradients flow through the all_gather that collects them, so that N ranks learn
// what one process with N times the batch does.
//
//   ddprun -n 2 build/release/bin/contrastive --epochs 12
//   ddprun -n 2 build/release/bin/contrastive --epochs 24 --resume
//
// The default data is the sample that comes with the project; scripts/get_cifar10 fetches the real images.
#include "examples/models/contrastive.h"

#include <CLI/CLI.hpp>
#include <torch/nn/functional/loss.h>
#include <torch/nn/functional/normalization.h>
#include <torch/optim/sgd.h>

#include <cmath>
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
      .epochs = 12, .lr = 0.01, .loader = {.batch_size = 64}, .checkpoint_dir = "checkpoints/contrastive"};
  std::string data_dir = CIFAR10_SAMPLE_DIR;
  std::string step_losses;
  double momentum = 0.9;
  double temperature = 0.2;
};

void declare(CLI::App& app, Arguments& args) {
  ddp::add_options(app, args.training);
  app.add_option("--data-dir", args.data_dir, "Folder with data_batch_*.bin and test_batch.bin")->capture_default_str();
  app.add_option("--momentum", args.momentum, "Momentum of SGD")->check(ddp::finite(0))->capture_default_str();
  app.add_option("--temperature", args.temperature, "Temperature of the contrastive loss")
      ->check(ddp::above(0))
      ->capture_default_str();
  app.add_option("--step-losses", args.step_losses, "Write each step's loss into FILE, .csv or .jsonl")
      ->type_name("FILE")
      ->check(ddp::metrics_file());
}

// A square part of the picture, at least a quarter of it, in the picture's size and in another brightness.
torch::Tensor crop_and_brighten(const torch::Tensor& image, ddp::SampleRandom& random) {
  const int64_t size = image.size(1);
  const auto side =
      static_cast<int64_t>(std::nearbyint(static_cast<double>(size) * std::sqrt(random.uniform(0.25, 1))));
  const int64_t top = random.below(size - side + 1), left = random.below(size - side + 1);
  const auto part = image.narrow(1, top, side).narrow(2, left, side).unsqueeze(0);
  const auto resized = torch::upsample_bilinear2d(part, {size, size}, /*align_corners=*/false);
  return resized.squeeze(0) * random.uniform(0.6, 1.4);
}

// Two views of each image, which depend on seed, epoch and the image's index alone, so not on the number of ranks.
class TwoViews {
 public:
  TwoViews(const ddp::Cifar10& images, uint64_t seed)
      : first_(images, views(), {.seed = 2 * seed}), second_(images, views(), {.seed = 2 * seed + 1}) {}

  int64_t size() const { return first_.size(); }

  // Returns all first views, then all second views: data (2 * indices, 3, 32, 32).
  ddp::Batch get_batch(std::span<const int64_t> indices, int64_t epoch) const {
    const ddp::Batch first = first_.get_batch(indices, epoch);
    return {.data = torch::cat({first.data, second_.get_batch(indices, epoch).data}), .target = first.target};
  }

 private:
  static ddp::transforms::Transform views() {
    return ddp::transforms::compose({crop_and_brighten, ddp::transforms::random_horizontal_flip()});
  }

  ddp::Transformed<ddp::Cifar10> first_, second_;
};

// Cross entropy of each of this rank's views against the views of all ranks, where the other view of the same picture
// is the right class (SimCLR's NT-Xent): the mean over this rank's views, and no factor. all_gather's gradient is the
// sum of what all ranks' losses say about this rank's views, and DistributedDataParallel divides the sum of gradients
// by the number of ranks: together, as batches are equally large, the gradient of the mean over all views.
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

// How well the net recognizes test images: for how many of them their own second view is the most similar one among all
// ranks' second views.
ddp::EpochMetric pair_accuracy(models::ContrastiveNet& net, const TwoViews& test, const ddp::GroupHandle& group) {
  constexpr int64_t kNumbers = models::ContrastiveNetImpl::kEmbedding;
  std::vector<torch::Tensor> own{torch::empty({2, 0, kNumbers}, group.device())};  // a rank may have no image
  for (const auto& batch : ddp::evaluate(net, test, group)) {
    own.push_back(F::normalize(net(batch.data)).view({2, batch.target.size(0), kNumbers}));
  }
  const auto views = torch::cat(own, 1);
  const auto second = ddp::all_gather_uneven(views[1].contiguous(), group);
  int64_t before = 0;
  for (int rank = 0; rank < group.rank(); ++rank) before += second[static_cast<size_t>(rank)].size(0);
  ddp::Accuracy accuracy;
  accuracy.update(views[0].mm(torch::cat(second).t()), torch::arange(views.size(1)).to(group.device()) + before);
  const auto counts = accuracy.counts(group);
  return ddp::ratio_metric("pair_accuracy", counts.right[0], counts.samples);
}

// For how many test images the most similar training image has the same class. Labels are read only here.
ddp::EpochMetric class_accuracy(models::ContrastiveNet& net, const ddp::Cifar10& train, const ddp::Cifar10& test,
                                const ddp::GroupHandle& group) {
  std::vector<torch::Tensor> features{torch::empty({0, models::ContrastiveNetImpl::kFeatures}, group.device())};
  std::vector<torch::Tensor> labels{torch::empty({0}, torch::TensorOptions(torch::kLong).device(group.device()))};
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
  return ddp::ratio_metric("class_accuracy", counts.right[0], counts.samples);
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
  const TwoViews views(train, options.seed), test_views(test, options.seed);
  const auto measure = [&] {
    return std::vector{pair_accuracy(net, test_views, group), class_accuracy(net, train, test, group)};
  };
  ddp::DistributedSampler sampler(views.size(), group, {.seed = options.seed});
  options.loader.drop_last = true;  // so batches are equally large
  ddp::DeviceLoader loader(views, sampler, group.device(), options.loader);

  ddp::CheckpointManager checkpoints(options.checkpoint_dir, group, {.keep_last = 2});
  ddp::TrainingState state{.model = net, .optimizer = optimizer, .shared = {{"buckets", model->bucket_layout()}}};
  state.values.set("seed", options.seed);
  const auto start = ddp::start_run(checkpoints, state, group, options.resume);
  if (start.step == 0) {
    const auto untrained = measure();
    ddp::print_on_main(group, "untrained: pair_accuracy ", untrained[0].text, ", class_accuracy ", untrained[1].text);
  }
  options.recorder.steps_done = start.step * loader.size();
  ddp::RunRecorder recorder(group, optimizer, options.recorder);
  ddp::MetricsFile losses(args.step_losses, group, {.append = start.step > 0});
  losses.drop_from("step", options.recorder.steps_done + 1);
  for (auto epoch = start.step; epoch < options.epochs; ++epoch) {
    sampler.set_epoch(epoch);
    recorder.begin_epoch(epoch, loader.size());
    for (const auto& batch : loader) {
      optimizer.zero_grad();
      const auto loss = contrastive_loss(model(batch.data), args.temperature, group);
      loss.backward();
      optimizer.step();
      recorder.step(loss, batch.target.size(0));
      if (args.step_losses.empty()) continue;  // what follows is a collective
      losses.write({{"step", recorder.steps_done()}, {"loss", ddp::reduce_tensor(loss, group).item<double>()}});
    }
    recorder.end_epoch(measure());
    checkpoints.save(epoch + 1, state);
    if (epoch + 1 == options.epochs || !ddp::stop_requested(group)) continue;
    ddp::print_on_main(group, "stopped on request: continue with --resume");
    return ddp::kSavedAndStopped;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) try {
  CLI::App app("Trains a net on images without labels (SimCLR) with data parallel training.");
  Arguments args;
  declare(app, args);
  CLI11_PARSE(app, argc, argv);
  return run(args);
} catch (const std::exception& error) {
  return ddp::report(error);
}

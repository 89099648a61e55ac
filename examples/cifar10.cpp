// Trains a LeNet-like network on CIFAR-10 images with one process per device: sharded data, averaged gradients, exact
// validation over all ranks, a checkpoint per epoch, resume.
//
//   ddprun --nproc_per_node=2 build/release/bin/cifar10 --lr 0.01 --momentum 0.9
//   ddprun --nproc_per_node=2 build/release/bin/cifar10 --lr 0.01 --momentum 0.9 --epochs 10 --resume
//   build/release/bin/cifar10 --data-dir cifar-10-batches-bin                     one process, no launcher
//   ddprun --nproc_per_node=2 build/release/bin/cifar10 --tensorboard runs/cifar10     then: tensorboard --logdir runs
//   ddprun --nproc_per_node=2 build/release/bin/cifar10 --amp bf16                 mixed precision; also: --opt-level
//   O2 torchrun --no-python --nproc_per_node=2 build/release/bin/cifar10
//
// The default data is the sample that comes with the project; scripts/get_cifar10 fetches the real images.
#include <ddp/ddp.h>
#include <torch/nn/functional/loss.h>
#include <torch/optim/sgd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <numeric>
#include <optional>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "examples/launch_options.h"
#include "examples/models/lenet.h"
#include "examples/run_folder.h"

namespace {

struct Options {
  std::string data_dir = CIFAR10_SAMPLE_DIR;
  int64_t epochs = 5;
  int64_t batch_size = 16;
  int64_t accumulate = 1;
  double lr = 0.001;
  double momentum = 0.0;
  uint64_t seed = 0;
  std::string amp;  // "fp16", "bf16", or empty for single precision
  std::string opt_level = "O1";
  bool augment = true;
  int workers = 1;
  std::string checkpoint_dir = "checkpoints/cifar10";
  std::optional<std::string> resume;  // a checkpoint's folder; empty for the newest one in checkpoint_dir
  std::string pretrained;
  std::string tensorboard;  // a folder; empty for none
  std::string metrics;      // a file; empty for none
  bool lr_given = false;
  bool momentum_given = false;
};

void add_options(CLI::App& app, Options& options) {
  app.add_option("--data-dir", options.data_dir, "Folder with data_batch_*.bin and test_batch.bin")
      ->capture_default_str();
  app.add_option("--epochs", options.epochs, "Train up to this many epochs, resumed ones included")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--batch-size", options.batch_size, "Samples per rank and backward pass")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--accumulate", options.accumulate, "Backward passes per optimizer step")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--lr", options.lr, "Learning rate of SGD (resumed: default is the checkpoint's)")
      ->capture_default_str();
  app.add_option("--momentum", options.momentum, "Momentum of SGD (resumed: default is the checkpoint's)")
      ->capture_default_str();
  app.add_option("--seed", options.seed, "For the initial weights and the order of samples")->capture_default_str();
  auto* amp =
      app.add_option("--amp", options.amp, "Mixed precision with fp16 or bf16")->check(CLI::IsMember({"fp16", "bf16"}));
  app.add_option("--opt-level", options.opt_level, "With --amp: O0, O1, O2 or O3, as apex had them")
      ->check(CLI::IsMember({"O0", "O1", "O2", "O3"}))
      ->needs(amp)
      ->capture_default_str();
  app.add_flag("--augment,!--no-augment", options.augment,
               "Crop and mirror the training images at random (default: on)");
  app.add_option("--workers", options.workers, "Threads that prepare batches; 0: none")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  app.add_option("--checkpoint-dir", options.checkpoint_dir, "Where each epoch's checkpoint goes")
      ->capture_default_str();
  auto* resume =
      app.add_option("--resume", options.resume, "Continue from FOLDER, or from the newest in --checkpoint-dir")
          ->type_name("[FOLDER]")
          ->expected(0, 1);
  app.add_option("--pretrained", options.pretrained, "Start from the weights in this safetensors or .pt file")
      ->type_name("FILE")
      ->excludes(resume);
  app.add_option("--tensorboard", options.tensorboard,
                 "Write loss, accuracy, images and weights for TensorBoard into DIR")
      ->type_name("DIR");
  app.add_option("--metrics", options.metrics, "Write a row per epoch into FILE, which ends in .csv or .jsonl")
      ->type_name("FILE");
}

using AmpModel = ddp::amp::Model<models::LeNet>;
using Model = ddp::DistributedDataParallel<AmpModel>;

/// What the run tells TensorBoard; nothing without --tensorboard.
class Recorder {
 public:
  /// `steps_done` by an earlier run that this one continues. Charts count batches from 1, so the values at
  /// steps_done are the earlier run's last ones. A run from the beginning replaces what is there.
  Recorder(const Options& options, const ddp::GroupHandle& group, int64_t steps_done) {
    if (options.tensorboard.empty()) return;
    ddp::SummaryWriterOptions writer_options;
    if (steps_done > 0) {
      writer_options.resume_after = steps_done;
    } else {
      writer_options.purge_step = 0;
    }
    writer_.emplace(options.tensorboard, group, writer_options);
  }

  void scalar(const char* tag, double value, int64_t step) {
    if (writer_) writer_->add_scalar(tag, value, step);
  }

  /// The first images, as the network sees them.
  void images(const torch::Tensor& normalized) {
    if (!writer_) return;
    const auto images =
        normalized.narrow(0, 0, std::min<int64_t>(normalized.size(0), 16)).cpu().mul(0.5).add(0.5).contiguous();
    writer_->add_images("images", ddp::ImagesView<float>{.pixels = values_of(images),
                                                         .count = images.size(0),
                                                         .channels = images.size(1),
                                                         .height = images.size(2),
                                                         .width = images.size(3)});
  }

  void weights(const models::LeNet& net, int64_t step) {
    if (!writer_) return;
    for (const auto& parameter : net->named_parameters()) {
      const auto weight = parameter.value().detach().to(torch::kCPU, torch::kFloat).contiguous();
      writer_->add_histogram(parameter.key(), values_of(weight), step);
    }
  }

  void hyper_parameters(const Options& options, double accuracy) {
    if (!writer_) return;
    writer_->add_hparams({{"lr", options.lr}, {"momentum", options.momentum}, {"batch_size", options.batch_size}},
                         {{"hparam/accuracy", accuracy}});
    writer_->flush();
  }

 private:
  static std::span<const float> values_of(const torch::Tensor& tensor) {
    return {tensor.const_data_ptr<float>(), static_cast<size_t>(tensor.numel())};
  }

  std::optional<ddp::SummaryWriter> writer_;
};

class Trainer {
 public:
  Trainer(const Options& options, const ddp::GroupHandle& group, const ddp::Cifar10& train, const AmpModel& model,
          const ddp::amp::Amp& amp, torch::optim::SGD& optimizer, Recorder& recorder)
      : options_(options),
        group_(group),
        train_(train, {.padding = options.augment ? 4 : 0, .flip = options.augment, .seed = options.seed}),
        sampler_(train.size(), group, {.seed = options.seed}),
        loader_(train_, sampler_, group.device(), {.batch_size = options.batch_size, .workers = options.workers}),
        model_(model, group),
        amp_(amp),
        optimizer_(optimizer),
        recorder_(recorder) {}

  /// Trains for one epoch and returns the mean loss over all ranks' samples. Every rank throws when it is not finite.
  double train_epoch(int64_t epoch) {
    model_->train();
    sampler_.set_epoch(epoch);
    const auto steps = loader_.size();
    const auto report_every = std::max<int64_t>(1, steps / 20);
    ddp::ProgressBar bar(steps, group_, {.description = "epoch " + std::to_string(epoch)});
    // Loss and samples so far. They stay on the device: reading them at every step would make the host wait for it.
    auto totals = torch::zeros({2}, torch::TensorOptions(group_.device()).dtype(torch::kDouble));
    double mean_loss = 0;
    int64_t step = 0;
    for (const auto& batch : loader_) {
      const auto begin_of_update = step - step % options_.accumulate;
      const auto end_of_update = std::min(begin_of_update + options_.accumulate, steps);
      const bool is_last = step + 1 == end_of_update;
      if (step == begin_of_update) optimizer_.zero_grad();
      if (step == 0 && epoch == 0) recorder_.images(batch.data);

      // Gradients are exchanged once per update, in its last backward pass.
      std::optional<ddp::NoSyncGuard> local_only;
      if (!is_last) local_only.emplace(model_->no_sync());
      torch::Tensor loss;
      {
        const auto autocast = amp_.autocast();
        loss = torch::nn::functional::cross_entropy(model_(batch.data), batch.target);
      }
      amp_.scale_loss(loss / (end_of_update - begin_of_update), optimizer_, {.delay_unscale = !is_last}).backward();
      if (is_last) amp_.step(optimizer_);

      const auto samples = static_cast<double>(batch.target.size(0));
      totals[0].add_(loss.detach(), samples);
      totals[1].add_(samples);
      if (++step % report_every == 0 || step == steps) {
        mean_loss = mean_over_ranks(totals, epoch, step);
        bar.set_postfix({{"loss", mean_loss}});
        recorder_.scalar("loss/train", mean_loss, epoch * steps + step);
      }
      bar.advance();
    }
    return mean_loss;
  }

 private:
  double mean_over_ranks(const torch::Tensor& totals, int64_t epoch, int64_t step) {
    auto sum = totals.clone();
    ddp::all_reduce(sum, group_);
    const auto mean = (sum[0] / sum[1]).item<double>();
    if (std::isfinite(mean)) return mean;
    std::ostringstream message;
    message << "the loss is " << (std::isnan(mean) ? "nan" : "infinite") << " at step " << step << " of epoch " << epoch
            << ", so training stops without saving this epoch; try a learning rate below "
            << optimizer_.param_groups().front().options().get_lr();
    throw std::runtime_error(message.str());
  }

  const Options& options_;
  ddp::GroupHandle group_;
  ddp::AugmentedImages train_;
  ddp::DistributedSampler sampler_;
  ddp::DeviceLoader<ddp::AugmentedImages> loader_;
  Model model_;
  ddp::amp::Amp amp_;
  torch::optim::SGD& optimizer_;
  Recorder& recorder_;
};

/// Number of test images that `model` classifies correctly, exact over all ranks: each image belongs to one rank,
/// whether or not the ranks divide the set.
int64_t count_correct(AmpModel& model, const ddp::Cifar10& test, const ddp::GroupHandle& group) {
  const torch::NoGradGuard no_grad;
  model->eval();
  const ddp::SequentialSampler sampler(test.size(), group);
  auto correct = torch::zeros({1}, torch::TensorOptions(group.device()).dtype(torch::kLong));
  for (const auto& batch : ddp::batches(test, sampler.indices(), 256)) {
    const auto prediction = model(batch.data.to(group.device())).argmax(1);
    correct += prediction.eq(batch.target.to(group.device())).sum();
  }
  ddp::all_reduce(correct, group);
  return correct.item<int64_t>();
}

/// Restores network and optimizer when the options ask for it; returns the epoch to go on with.
int64_t resume(const Options& options, ddp::CheckpointManager& checkpoints, const ddp::TrainingState& state,
               torch::optim::SGD& optimizer, const ddp::GroupHandle& group) {
  if (!options.resume) return 0;
  std::optional<ddp::LoadedCheckpoint> loaded;
  if (options.resume->empty()) {
    loaded = checkpoints.load_latest(state);
  } else {
    loaded = checkpoints.load(std::filesystem::path(*options.resume), state);
  }
  if (!loaded) {
    if (group.rank() == 0) {
      std::printf("no checkpoint in %s yet: starting from the beginning\n", options.checkpoint_dir.c_str());
    }
    return 0;
  }
  for (auto& parameters : optimizer.param_groups()) {
    auto& sgd = static_cast<torch::optim::SGDOptions&>(parameters.options());
    if (options.lr_given) sgd.lr(options.lr);
    if (options.momentum_given) sgd.momentum(options.momentum);
  }
  if (group.rank() == 0) {
    std::printf("resumed from %s: continuing with epoch %lld\n", loaded->folder.c_str(),
                static_cast<long long>(loaded->step));
  }
  return loaded->step;
}

ddp::amp::Amp initialize_amp(const Options& options, models::LeNet& net, torch::optim::SGD& optimizer,
                             const ddp::GroupHandle& group) {
  return ddp::amp::initialize(net, optimizer,
                              {.enabled = !options.amp.empty(),
                               .opt_level = options.opt_level,
                               .dtype = options.amp == "fp16" ? torch::kHalf : torch::kBFloat16,
                               .group = group});
}

void print_banner(const Options& options, const ddp::GroupHandle& group, const ddp::Cifar10& train,
                  const ddp::Cifar10& test) {
  const auto count = [](int64_t value) { return static_cast<long long>(value); };
  std::printf("%d %s × batch %lld × accumulation %lld = global batch %lld, device %s, backend %s\n", group.size(),
              group.size() == 1 ? "rank" : "ranks", count(options.batch_size), count(options.accumulate),
              count(group.size() * options.batch_size * options.accumulate), group.device().str().c_str(),
              group.backend().c_str());
  if (!options.amp.empty()) {
    std::printf("mixed precision: %s, level %s\n", options.amp.c_str(), options.opt_level.c_str());
  }
  std::printf("dataset %s: %lld training and %lld validation images\n", options.data_dir.c_str(), count(train.size()),
              count(test.size()));
}

}  // namespace

int main(int argc, char** argv) try {
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);  // each line at once, through a launcher's pipe as well
  CLI::App app("Trains a LeNet-like network on CIFAR-10 images with data parallel training.");
  Options options;
  add_options(app, options);
  const examples::LocalRankOption local_rank(app);
  CLI11_PARSE(app, argc, argv);
  options.lr_given = app.count("--lr") > 0;
  options.momentum_given = app.count("--momentum") > 0;

  const ddp::Normalization normalization{.mean = {0.5F, 0.5F, 0.5F}, .stddev = {0.5F, 0.5F, 0.5F}};
  const ddp::Cifar10 train(options.data_dir, ddp::Cifar10::Split::kTrain, normalization);
  const ddp::Cifar10 test(options.data_dir, ddp::Cifar10::Split::kTest, normalization);

  auto group = ddp::init_process_group({.rank_info = local_rank.rank_info()});
  ddp::install_stop_handlers();  // TERM, INT and USR1 end the run after the epoch, saved
  // Started again by the launcher after a failure (--max_restarts): go on where the failed attempt was.
  if (!options.resume && group.info().restart_count > 0) options.resume = "";
  const bool is_first = group.rank() == 0;
  if (is_first) print_banner(options, group, train, test);

  ddp::manual_seed(options.seed, group);
  models::LeNet net;
  net->to(group.device());
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(options.lr).momentum(options.momentum));

  // On rank 0 only: the wrapper, made later, copies its weights to the other ranks.
  if (!options.pretrained.empty()) ddp::load_weights(options.pretrained, net, group);
  const auto amp = initialize_amp(options, net, optimizer, group);
  auto model = amp.model(net);

  ddp::CheckpointManager checkpoints(options.checkpoint_dir, group);
  // With masters, these are saved in place of their 16-bit copies.
  const auto masters = amp.properties().master_weights ? amp.fp32_state(net) : nullptr;
  ddp::TrainingState state{.model = net, .optimizer = optimizer};
  if (masters) state.model = *masters;
  if (amp.properties().enabled) state.scaler = amp;
  const auto first_epoch = resume(options, checkpoints, state, optimizer, group);
  const auto samples_per_rank = (train.size() + group.size() - 1) / group.size();
  const auto steps_per_epoch = (samples_per_rank + options.batch_size - 1) / options.batch_size;
  Recorder recorder(options, group, first_epoch * steps_per_epoch);
  std::optional<ddp::MetricsFile> metrics;
  if (!options.metrics.empty()) {
    metrics.emplace(options.metrics, group, ddp::MetricsFileOptions{.append = first_epoch > 0});
  }
  Trainer trainer(options, group, train, model, amp, optimizer, recorder);
  checkpoints.claim();  // another run may be saving there
  if (is_first && !options.resume) {
    if (const auto aside = examples::set_aside_checkpoints(options.checkpoint_dir)) {
      std::printf("a new run: the earlier one's checkpoints are in %s now\n", aside->c_str());
    }
  }

  for (auto epoch = first_epoch; epoch < options.epochs; ++epoch) {
    const auto loss = trainer.train_epoch(epoch);
    const auto correct = count_correct(model, test, group);
    const auto accuracy = static_cast<double>(correct) / static_cast<double>(test.size());
    // Named by the number of finished epochs, which is the epoch to go on with.
    checkpoints.save(epoch + 1, state, {.metrics = {{"loss", loss}, {"accuracy", accuracy}}});
    recorder.scalar("accuracy/validation", accuracy, (epoch + 1) * steps_per_epoch);
    recorder.weights(net, (epoch + 1) * steps_per_epoch);
    if (epoch + 1 == options.epochs) recorder.hyper_parameters(options, accuracy);
    if (metrics) metrics->write({{"epoch", epoch}, {"loss", loss}, {"accuracy", accuracy}});
    if (is_first) {
      std::printf("epoch %lld: loss %.4f, validation accuracy %.1f %% (%lld/%lld)\n", static_cast<long long>(epoch),
                  loss, 100.0 * accuracy, static_cast<long long>(correct), static_cast<long long>(test.size()));
    }
    if (epoch + 1 < options.epochs && ddp::stop_requested(group)) {
      if (is_first) std::printf("told to stop: continue with --resume\n");
      return ddp::kSavedAndStopped;
    }
  }
  return 0;
} catch (const std::exception& error) {
  return ddp::report(error);
}

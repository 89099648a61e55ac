#include "ddprun/training/run_recorder.h"

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <span>
#include <sstream>
#include <stdexcept>
#include <utility>

#include <ddprun/base/progress.h>
#include <ddprun/comm/process_group.h>

namespace ddp {
namespace {

constexpr int64_t kImages = 16;

SummaryWriterOptions continuing(int64_t steps_done) {
  SummaryWriterOptions options;
  if (steps_done > 0) {
    options.resume_after = steps_done;
  } else {
    options.purge_step = 0;  // a run from the beginning replaces all earlier steps
  }
  return options;
}

at::Tensor on_host(const at::Tensor& tensor) {
  return tensor.detach().to(at::kCPU, at::kFloat).contiguous();
}

std::span<const float> values_of(const at::Tensor& tensor) {
  return {tensor.const_data_ptr<float>(), static_cast<size_t>(tensor.numel())};
}

}  // namespace

RunRecorder::RunRecorder(const GroupHandle& group, const torch::optim::Optimizer& optimizer,
                         const RunRecorderOptions& options)
    : group_(group), optimizer_(optimizer), options_(options), steps_done_(options.steps_done) {
  if (options.reports_per_epoch < 1) {
    throw std::invalid_argument("RunRecorder: expected at least 1 report per epoch, got " +
                                std::to_string(options.reports_per_epoch));
  }
  if (!options.tensorboard.empty()) tensorboard_.emplace(options.tensorboard, group, continuing(steps_done_));
  if (!options.metrics.empty()) {
    metrics_.emplace(options.metrics, group, MetricsFileOptions{.append = steps_done_ > 0});
  }
}

void RunRecorder::begin_epoch(int64_t epoch, int64_t steps) {
  epoch_ = epoch;
  steps_of_epoch_ = steps;
  step_of_epoch_ = 0;
  // If a run was killed after it had written the row of an epoch and before it saved the checkpoint, this epoch is
  // repeated and its earlier row must be removed.
  if (metrics_ && steps > 0 && !std::exchange(has_begun_, true)) metrics_->drop_from("epoch", epoch);
  average_.reset();
  reported_ = {};
  mean_.reset();
  bar_.reset();
  if (steps == 0) return;  // for example after a resume at the end of an epoch
  bar_.emplace(steps, group_, ProgressOptions{.description = "epoch " + std::to_string(epoch)});
}

void RunRecorder::step(const at::Tensor& loss, int64_t samples) {
  average_.update(loss, samples);
  mean_.reset();
  ++step_of_epoch_;
  ++steps_done_;
  const auto report_every = std::max<int64_t>(1, steps_of_epoch_ / options_.reports_per_epoch);
  const bool is_last = step_of_epoch_ == steps_of_epoch_;
  if (is_last || step_of_epoch_ % report_every == 0) report();
  if (bar_) bar_->advance();
  if (is_last) bar_.reset();
}

void RunRecorder::report() {
  const auto totals = average_.totals(group_);
  const double mean = totals.mean();
  mean_ = mean;
  if (!std::isfinite(mean)) {
    std::ostringstream message;
    message << "the loss is " << (std::isnan(mean) ? "nan" : "infinite") << " at step " << step_of_epoch_
            << " of epoch " << epoch_
            << ", so training stops without saving this epoch; usual causes: the learning rate is "
            << "too high (it is " << learning_rate() << "), the data are not finite, or 16-bit numbers overflow";
    throw std::runtime_error(message.str());
  }
  progress::value("loss", mean);
  if (bar_) bar_->set_postfix({{"loss", mean}});
  // The mean over the batches since the last report. A mean over the epoch would jump at the beginning of each epoch.
  const Average::Totals recent{.sum = totals.sum - reported_.sum, .samples = totals.samples - reported_.samples};
  reported_ = totals;
  if (!writes_tensorboard()) return;
  if (recent.samples > 0) tensorboard_->add_scalar("loss/train", recent.mean(), steps_done_);
  tensorboard_->add_scalar("lr", learning_rate(), steps_done_);
}

double RunRecorder::learning_rate() const {
  return optimizer_.param_groups().front().options().get_lr();
}

double RunRecorder::mean_loss() {
  if (!mean_) mean_ = average_.compute(group_);
  return *mean_;
}

void RunRecorder::end_epoch(const std::vector<EpochMetric>& metrics) {
  const double loss = mean_loss();
  bar_.reset();
  // The run was resumed after the last batch of the epoch, so there was no batch left, and the row of the epoch already
  // exists.
  if (step_of_epoch_ == 0 && std::isnan(loss)) return;
  last_epoch_ = {{"loss", loss}};
  MetricRow row{{"epoch", epoch_}, {"loss", loss}};
  for (const auto& metric : metrics) {
    const auto column = last_epoch_.contains(metric.name) ? "validation_" + metric.name : metric.name;
    last_epoch_[column] = metric.value;
    row.emplace_back(column, metric.value);
    if (writes_tensorboard()) tensorboard_->add_scalar(metric.name + "/validation", metric.value, steps_done_);
  }
  if (metrics_) metrics_->write(row);
  print_on_main(group_, epoch_line(epoch_, loss, metrics));
  for (const auto& metric : metrics) {
    if (metric.name == "loss" && !std::isfinite(metric.value)) warn_of_validation(metric.value);
  }
}

void RunRecorder::warn_of_validation(double loss) const {
  if (group_.rank() != 0) return;
  std::ostringstream message;
  message << "WARNING: the validation loss of epoch " << epoch_ << " is " << (std::isnan(loss) ? "nan" : "infinite")
          << ", though the loss of training is finite: either nothing was evaluated, or weights, batch norm's running "
             "statistics or 16-bit numbers are not finite any more\n";
  std::fputs(message.str().c_str(), stderr);
}

void RunRecorder::write_hparams(const std::map<std::string, HyperParameter>& parameters) {
  if (!writes_tensorboard() || last_epoch_.empty()) return;
  std::map<std::string, double> results;
  for (const auto& [name, value] : last_epoch_) results["hparam/" + name] = value;
  tensorboard_->add_hparams(parameters, results);
  tensorboard_->flush();
}

void RunRecorder::images(const std::string& tag, const at::Tensor& images) {
  if (!writes_tensorboard()) return;
  const auto shown = on_host(images.narrow(0, 0, std::min(images.size(0), kImages)));
  tensorboard_->add_images(tag,
                           ImagesView<float>{.pixels = values_of(shown),
                                             .count = shown.size(0),
                                             .channels = shown.size(1),
                                             .height = shown.size(2),
                                             .width = shown.size(3)},
                           steps_done_);
}

void RunRecorder::weights(AnyModuleRef model) {
  if (!writes_tensorboard()) return;
  for (const auto& parameter : model.get().named_parameters()) {
    tensorboard_->add_histogram(parameter.key(), values_of(on_host(parameter.value())), steps_done_);
  }
}

}  // namespace ddp

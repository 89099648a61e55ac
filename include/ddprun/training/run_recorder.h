// The output of a run during training: progress bar, TensorBoard, metrics file, and a line on the console per epoch.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <ddprun/comm/any_module_ref.h>
#include <ddprun/comm/process_group.h>
#include <ddprun/metrics/metrics.h>
#include <ddprun/monitor/metrics_file.h>
#include <ddprun/monitor/progress_bar.h>
#include <ddprun/monitor/summary_writer.h>
#include <ddprun/training/epoch_metric.h>

namespace torch::optim {
class Optimizer;
}

namespace ddp {

/// Settings of a RunRecorder, all optional.
struct RunRecorderOptions {
  std::string tensorboard{};  ///< folder for TensorBoard; empty for none
  std::string metrics{};      ///< file with one row per epoch, .csv or .jsonl; empty for none
  /// Number of batches that earlier parts of this run have trained on. The curves continue after these batches and
  /// replace the later points of an interrupted attempt; rows are appended to the file. With 0, the curves and the file
  /// start empty.
  int64_t steps_done = 0;
  /// How many times per epoch the loss is read from the device and averaged over the ranks, which makes the host wait.
  int64_t reports_per_epoch = 20;
};

/// Rank 0 writes and displays; the other ranks only take part in the averages. Steps are batches, counted over all
/// epochs.
///
///     ddp::RunRecorder recorder(group, optimizer, {.tensorboard = "runs/a", .steps_done = first * loader.size()});
///     for (auto epoch = first; epoch < epochs; ++epoch) {
///       recorder.begin_epoch(epoch, loader.size());
///       for (auto& batch : loader) { …; recorder.step(loss, batch.target.size(0)); }
///       …
///       recorder.end_epoch({{"accuracy", accuracy}});
///       checkpoints.save(epoch + 1, state);
///     }
///
/// | what               | TensorBoard             | metrics file                     | console               |
/// | mean training loss | loss/train, lr          | loss                             | loss 1.2345           |
/// | metric "accuracy"  | accuracy/validation     | accuracy                         | validation accuracy … |
/// | metric "loss"      | loss/validation         | validation_loss                  | validation loss …     |
///
/// A point of loss/train is the mean of the batches since the previous point; the other losses are the mean of the
/// epoch.
///
/// Not safe for concurrent calls. If a file cannot be written, rank 0 throws std::runtime_error, which names the file.
class RunRecorder {
 public:
  /// Opens the files; not a collective. The learning rate of the first group of `optimizer`, which must outlive this
  /// object, is recorded.
  RunRecorder(const GroupHandle& group, const torch::optim::Optimizer& optimizer,
              const RunRecorderOptions& options = {});

  /// Begins an epoch of `steps` batches and shows its progress bar, if there are any batches.
  void begin_epoch(int64_t epoch, int64_t steps);

  /// Must be called after each batch. `loss` is a tensor of one element on any device, the mean over `samples` samples.
  /// Every rank must call it the same number of times, because some calls average over the ranks. Throws
  /// std::runtime_error on all ranks if that average is not finite, naming step, epoch and learning rate.
  void step(const at::Tensor& loss, int64_t samples);

  /// Returns the mean loss of the epoch so far, over the samples of all ranks; NaN without samples. Every rank must
  /// call it.
  double mean_loss();

  /// Ends an epoch after its evaluation: writes its results to the console and all files. Call it before the checkpoint
  /// is saved. If the run is killed between the two, the resumed run writes the row again, and it replaces the first
  /// one. In the other order, the row would be missing. Writes nothing if no rank had a batch, for example after a
  /// resume at the end of the epoch. After a resume in mid-epoch, the numbers are those of the rest of the epoch. Every
  /// rank must call it.
  void end_epoch(const std::vector<EpochMetric>& metrics = {});

  /// Writes the run's row on TensorBoard's HParams page, with the loss and metrics of the last epoch. Writes nothing if
  /// no epoch has ended. Call it at the end of a run.
  void write_hparams(const std::map<std::string, HyperParameter>& parameters);

  /// Writes the first 16 of `images` to TensorBoard: (N, C, H, W) with values from 0 to 1 and 1 to 4 channels, on any
  /// device.
  void images(const std::string& tag, const at::Tensor& images);
  /// Writes the distribution of each of the model's parameters to TensorBoard, with the parameter's name as the tag.
  void weights(AnyModuleRef model);
  /// Returns the writer, for other data; null without TensorBoard. On ranks other than 0, the writer does nothing.
  SummaryWriter* tensorboard() { return tensorboard_ ? &*tensorboard_ : nullptr; }

  /// Returns the number of batches trained on, including those of earlier parts of the run.
  int64_t steps_done() const { return steps_done_; }

 private:
  bool writes_tensorboard() const { return tensorboard_ && tensorboard_->is_active(); }
  double learning_rate() const;
  void report();
  void warn_of_validation(double loss) const;

  GroupHandle group_;
  const torch::optim::Optimizer& optimizer_;
  RunRecorderOptions options_;
  std::optional<SummaryWriter> tensorboard_;
  std::optional<MetricsFile> metrics_;
  std::optional<ProgressBar> bar_;
  Average average_{};
  Average::Totals reported_{};    // the epoch's totals up to the last point
  std::optional<double> mean_{};  // the mean of all values in average_; empty if values were added since
  std::map<std::string, double> last_epoch_{};
  int64_t epoch_ = 0;
  int64_t steps_of_epoch_ = 0;
  int64_t step_of_epoch_ = 0;
  int64_t steps_done_ = 0;
  bool has_begun_ = false;  // whether an epoch has begun
};

}  // namespace ddp

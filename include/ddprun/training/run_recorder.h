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
  std::string metrics{};      ///< file of a row per epoch, .csv or .jsonl; empty for none
  /// Number of batches that earlier parts of this run have trained on. The curves continue after these batches and
  /// replace the points that an interrupted attempt wrote for later ones; rows are appended to the file. 0 begins new
  /// curves and an empty file.
  int64_t steps_done = 0;
  /// How often an epoch's loss is read from the device and averaged over the ranks, which makes the host wait.
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
/// A point of loss/train is the mean of the batches since the point before; the other losses are the epoch's mean.
///
/// Not safe for concurrent calls. If a file cannot be written, rank 0 throws std::runtime_error, which names the file.
class RunRecorder {
 public:
  /// Opens the files; not a collective. `optimizer`, whose first group's learning rate is recorded, must outlive it.
  RunRecorder(const GroupHandle& group, const torch::optim::Optimizer& optimizer,
              const RunRecorderOptions& options = {});

  /// Begins an epoch of `steps` batches and shows its progress bar, if there are any batches.
  void begin_epoch(int64_t epoch, int64_t steps);

  /// After each batch: `loss`, a tensor of one element on any device, is the mean over `samples` samples. Every rank
  /// must call it equally often, because some calls average over the ranks. Throws std::runtime_error on all ranks when
  /// that mean is not finite, naming step, epoch and learning rate.
  void step(const at::Tensor& loss, int64_t samples);

  /// The mean loss over the epoch's samples of all ranks so far; NaN without any. Every rank must call it.
  double mean_loss();

  /// Ends an epoch after its evaluation: writes its results to the console and all files. Call it before the checkpoint
  /// is saved. If the run is killed between the two, the resumed run writes the row again and it replaces the first
  /// one; in the other order the row would be missing. Writes nothing when no rank had a batch, as after a resume at
  /// the epoch's end. After a resume in mid-epoch the numbers are those of the rest of the epoch. Every rank must call
  /// it.
  void end_epoch(const std::vector<EpochMetric>& metrics = {});

  /// The run's row on TensorBoard's HParams page, with the last epoch's loss and metrics; writes nothing if no epoch
  /// has ended. Call it at the end of a run.
  void write_hparams(const std::map<std::string, HyperParameter>& parameters);

  /// For TensorBoard: the first 16 of `images`, (N, C, H, W) with values 0 to 1 and 1 to 4 channels, on any device.
  void images(const std::string& tag, const at::Tensor& images);
  /// For TensorBoard: the distribution of each of the model's parameters, under its name.
  void weights(AnyModuleRef model);
  /// The writer, for other data; null without TensorBoard. On ranks other than 0 the writer does nothing.
  SummaryWriter* tensorboard() { return tensorboard_ ? &*tensorboard_ : nullptr; }

  /// Batches trained on, those of earlier parts of the run included.
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
  Average::Totals reported_{};    // of the epoch, up to the last point
  std::optional<double> mean_{};  // of all that average_ has; none while it has more
  std::map<std::string, double> last_epoch_{};
  int64_t epoch_ = 0;
  int64_t steps_of_epoch_ = 0;
  int64_t step_of_epoch_ = 0;
  int64_t steps_done_ = 0;
  bool has_begun_ = false;  // with an epoch
};

}  // namespace ddp
